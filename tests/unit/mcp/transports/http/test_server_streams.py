"""What a server says by itself: on a stream of its own, or all of it on the stream of 2024-11-05."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from gaia.http.waits import Turn
from gaia.mcp import MCPClient
from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.transports.http.channel import HttpChannel
from gaia.mcp.transports.http.server_streams import ServerStream
from tests.servers.http_server import Exchange, ScriptedServer
from tests.unit.mcp.transports.http.conftest import TEXT, Connect, Serve, text_of
from tests.waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a stream is asked for again, where the server does not say how long."""
    monkeypatch.setattr("gaia.mcp.transports.http.event_stream._RETRY_SECONDS", 0.1)


class TestWhatTheServerSays:
    def test_a_question_is_answered_with_a_post(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        connect(server)
        server.outbox.put({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        assert wait_until(lambda: any(seen.body.get("id") == "q" for seen in server.seen))
        (answer,) = [seen for seen in server.seen if seen.body.get("id") == "q"]
        assert answer.body["result"] == {}
        assert answer.headers["mcp-session-id"] == "session-1"

    def test_a_server_without_such_a_stream_will_do(self, serve: Serve, connect: Connect) -> None:
        server = serve(on={"GET": lambda exchange: exchange.body(b"", status=405)})
        client = connect(server)
        server.wait_for("GET")
        assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert len(server.of("GET")) == 1

    def test_a_stream_that_ends_is_asked_for_again_from_where_it_ended(self, serve: Serve, connect: Connect) -> None:
        server = serve()

        def brief(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("", id="event-7", retry="10")
            exchange.end_stream()

        server.on["GET"] = brief
        connect(server)
        assert "last-event-id" not in server.wait_for("GET").headers
        assert server.wait_for("GET").headers["last-event-id"] == "event-7"

    @pytest.mark.parametrize("status", [400, 503])
    def test_trouble_for_a_while_is_no_refusal(self, status: int, serve: Serve, connect: Connect) -> None:
        server = serve()
        asked = []

        def listen(exchange: Exchange) -> None:
            asked.append(exchange)
            if len(asked) == 1:
                exchange.body(b"", status=status)
            else:
                server._listen(exchange)

        server.on["GET"] = listen
        client = connect(server)
        server.tools.append({"name": "new", "inputSchema": {"type": "object"}})
        server.outbox.put({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        assert wait_until(lambda: "new" in [tool.name for tool in client.list_tools()])

    def test_a_server_that_wants_to_be_asked_at_once_is_asked_less_and_less_often(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        times = []

        def end(exchange: Exchange) -> None:
            times.append(time.monotonic())
            exchange.begin_stream()
            exchange.event("", retry=0)
            exchange.end_stream()

        server.on["GET"] = end
        connect(server)
        assert wait_until(lambda: len(times) >= 4)
        assert times[3] - times[0] >= 0.1 + 0.2 + 0.4

    def test_a_refused_connection_does_not_end_calls_that_are_under_way(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.channel._DRAIN_SECONDS", 0.1)
        server = serve()
        cut, go = threading.Event(), threading.Event()

        def listen(exchange: Exchange) -> None:
            exchange.begin_stream()
            cut.wait(PATIENCE)
            exchange.drop()

        def slow(exchange: Exchange) -> None:
            go.wait(PATIENCE)
            server.respond(exchange, exchange.answer(TEXT))

        server.on.update({"GET": listen, "tools/call": slow})
        client = connect(server)
        assert server.wait_for("GET")
        running = client.submit_tool("echo", {})
        assert server.wait_for("tools/call")
        refused = threading.Event()
        unreachable = HttpChannel.unreachable

        def noted(channel: HttpChannel, *arguments: Any) -> bool:
            refused.set()
            return unreachable(channel, *arguments)

        monkeypatch.setattr(HttpChannel, "unreachable", noted)
        with server.refusing_connections():
            # The stream is asked for again, on a new connection.
            cut.set()
            assert refused.wait(PATIENCE)
            # The time after which a channel ends that cannot be reached.
            with pytest.raises(TimeoutError):
                running.result(0.3)
        go.set()
        assert running.result(PATIENCE) == TEXT
        assert client.status.generation == 1


class TestTheFirstRequests:
    """A question that a tool asks on the stream would be lost if the server did not know of the stream yet."""

    @pytest.mark.parametrize("offered", [True, False])
    def test_they_wait_for_the_answer_to_the_get(self, offered: bool, serve: Serve, connect: Connect) -> None:
        server = serve()
        posted = threading.Event()
        overtaken = []

        def listen(exchange: Exchange) -> None:
            overtaken.append(posted.wait(0.2))
            if offered:
                server._listen(exchange)
            else:
                exchange.body(b"", status=405)

        def tools(exchange: Exchange) -> None:
            posted.set()
            server.respond(exchange, exchange.answer({"tools": []}))

        server.on.update({"GET": listen, "tools/list": tools})
        assert connect(server).list_tools() == []
        assert overtaken == [False]

    def test_a_server_that_says_nothing_before_its_first_event_delays_them_for_a_moment(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.server_streams._ANSWER_SECONDS", 0.1)
        server = serve(on={"GET": lambda exchange: exchange.wait_for_client_to_leave()})
        client = connect(server)
        assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"

    def test_disconnecting_waits_for_no_answer(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.server_streams._ANSWER_SECONDS", PATIENCE)
        server = serve(on={"GET": lambda exchange: exchange.wait_for_client_to_leave()})
        client = MCPClient.from_config("web", {"url": server.url})
        connecting = threading.Thread(target=client.connect)
        connecting.start()
        assert server.wait_for("GET")
        client.disconnect()
        connecting.join(PATIENCE / 4)
        assert not connecting.is_alive()

    def test_those_that_waited_are_not_sent_on_a_channel_that_ends(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, begun = serve(), threading.Event()
        sent: list[str | None] = []
        initialized, submit, end = HttpChannel._initialized, HttpChannel._submit, HttpChannel._end_when_drained

        async def lose(stream: ServerStream) -> None:
            while not stream._channel._held:  # type: ignore[attr-defined]
                await Turn()
            stream._channel.session_forgotten()

        async def begin(channel: HttpChannel) -> None:
            await initialized(channel)
            begun.set()

        def note(channel: HttpChannel, item: Outgoing) -> None:
            sent.append(item.method)
            submit(channel, item)

        async def end_later(channel: HttpChannel) -> None:
            while not begun.is_set():
                await Turn()
            await end(channel)

        monkeypatch.setattr(ServerStream, "wait_until_answered", lose)
        monkeypatch.setattr(HttpChannel, "_initialized", begin)
        monkeypatch.setattr(HttpChannel, "_submit", note)
        monkeypatch.setattr(HttpChannel, "_end_when_drained", end_later)
        client = MCPClient.from_config("web", {"url": server.url, "protocol": "handshake"})
        assert not client.connect()
        client.disconnect()
        assert sent == ["initialize", "notifications/initialized"]


class TestForgottenSession:
    def test_the_stream_of_the_server_tells_it_too(self, server: ScriptedServer, client: MCPClient) -> None:
        server.wait_for("GET")
        server.open_sessions.clear()
        server.on["GET"] = lambda exchange: exchange.body(b"", status=404)
        server.outbox.put(None)
        assert wait_until(lambda: client.status.restarts == 1)

    def test_a_server_without_a_stream_of_its_own_may_say_so_with_404(self, serve: Serve, connect: Connect) -> None:
        server = serve(on={"GET": lambda exchange: exchange.body(b"", status=404)})
        client = connect(server)
        server.wait_for("GET")
        assert not client.call_tool("echo", {}).is_error
        assert client.status.generation == 1


class TestTheOldTransport:
    def test_it_is_found_out(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        refuse = server.on.setdefault("initialize", lambda exchange: refused(server, exchange))
        server.on["server/discover"] = refuse
        client = connect(server)
        assert client.protocol_version == "2024-11-05"
        assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert {seen.path for seen in server.of("tools/call")} == {"/messages?id=1"}

    def test_a_configuration_may_say_it_and_its_connections_are_used_again(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve(era="2024-11-05")
        client = connect(server, type="sse")
        assert server.methods()[:2] == ["GET", "initialize"]
        ports = set()

        def note(exchange: Exchange) -> None:
            ports.add(exchange._handler.client_address[1])
            server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = note
        for _ in range(30):
            assert client.call_tool("echo", {}) == TEXT
        assert len(ports) < 5

    @pytest.mark.parametrize(
        ("endpoint", "said"),
        [
            ("http://127.0.0.1:9/messages", "to another place, which is not trusted"),
            ("//evil.example/messages", "to another place, which is not trusted"),
            (None, "does not say where to send messages"),
        ],
    )
    def test_messages_go_nowhere_else(
        self, endpoint: str | None, said: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def listen(exchange: Exchange) -> None:
            if endpoint is not None:
                exchange.begin_stream()
                exchange.event(endpoint, event="endpoint")
            exchange.wait_for_client_to_leave()

        if endpoint is None:
            monkeypatch.setattr("gaia.mcp.transports.http.server_streams._ENDPOINT_SECONDS", 0.1)
        server = serve(era="2024-11-05", on={"GET": listen})
        client = MCPClient.from_config("web", {"url": server.url, "type": "sse"})
        assert not client.connect()
        assert said in str(client.last_error)
        client.disconnect()

    def test_a_server_without_it_fails_for_the_first_reason(self, serve: Serve) -> None:
        nothing = {verb: lambda exchange: exchange.body(b"", status=404) for verb in ("server/discover", "initialize")}
        server = serve(on={**nothing, "GET": lambda exchange: exchange.body(b"", status=500)})
        client = MCPClient.from_config("web", {"url": server.url})
        assert not client.connect()
        assert client.last_error == "the server answered 404 Not Found"
        client.disconnect()

    def test_the_end_of_the_stream_is_the_end_of_the_server(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        client = connect(server, type="sse", restart={"initialDelay": 0.05})
        server.outbox.put(None)
        assert wait_until(lambda: client.status.restarts == 1)
        assert not client.call_tool("echo", {}).is_error


def refused(server: ScriptedServer, exchange: Exchange) -> None:
    if exchange.seen.path == "/mcp":
        exchange.body(b"", status=405)
    else:
        server._answer(exchange)
