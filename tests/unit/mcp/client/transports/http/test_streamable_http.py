"""Talking to servers that work."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gaia.mcp import MCPClient
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.client.transports.http.conftest import Connect, Serve
from tests.waiting import wait_until

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
TEXT = {"content": [{"type": "text", "text": "hi"}]}


def text_of(result: dict[str, Any]) -> Any:
    return result["content"][0]["text"]


class TestCalls:
    @ERAS
    @pytest.mark.parametrize("answer_in_streams", [False, True])
    def test_a_tool_is_listed_and_called(
        self, era: str, answer_in_streams: bool, serve: Serve, connect: Connect
    ) -> None:
        client = connect(serve(era=era, answer_in_streams=answer_in_streams))
        assert client.protocol_version == era
        assert [tool.name for tool in client.list_tools()] == ["echo", "read"]
        assert text_of(client.call_tool("echo", {"text": "grüße"})) == "grüße"

    @ERAS
    def test_many_threads_call_at_once(self, era: str, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        meeting = threading.Barrier(8, timeout=10)

        def together(exchange: Exchange) -> None:
            meeting.wait()
            server.respond(exchange, exchange.answer(TEXT))

        client = connect(server)
        server.on["tools/call"] = together
        futures = [client.submit_tool("echo", {"text": str(number)}) for number in range(8)]
        assert [future.result(10) for future in futures] == [TEXT] * 8

    @ERAS
    def test_an_error_of_the_server_arrives_whatever_its_status(self, era: str, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32602, "bad"), status=400)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32602)

    def test_an_error_without_our_id_is_the_answer_to_the_request(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32600, "no") | {"id": None}, 400)
        assert client.call_tool("echo", {})["code"] == -32600

    def test_progress_and_answer_come_on_one_stream(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def report(exchange: Exchange) -> None:
            token = exchange.seen.body["params"]["_meta"]["progressToken"]
            exchange.begin_stream()
            exchange.chunk(b": a comment\n\n")
            params = {"progressToken": token, "progress": 1, "total": 2}
            exchange.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            exchange.event(exchange.answer(TEXT))
            exchange.end_stream()

        server.on["tools/call"] = report
        progress: list[Any] = []
        assert client.call_tool("echo", {}, on_progress=lambda *told: progress.append(told)) == TEXT
        assert progress == [(1, 2, None)]

    def test_a_connection_is_used_again(self, serve: Serve, connect: Connect) -> None:
        ports = set()
        server = serve(answer_in_streams=True)

        def note(exchange: Exchange) -> None:
            ports.add(exchange._handler.client_address[1])
            server.respond(exchange, exchange.answer(TEXT))

        client = connect(server)
        server.on["tools/call"] = note
        for _ in range(30):
            client.call_tool("echo", {})
        # A call that comes before the end of the last stream is read takes another one.
        assert len(ports) < 5


class TestWhatIsSent:
    def test_a_session_is_named_in_all_that_follows_its_beginning(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        client.call_tool("echo", {})
        server.wait_for("GET")
        client.disconnect()
        for seen in server.seen:
            begun = seen.method not in ("server/discover", "initialize")
            assert seen.headers.get("mcp-session-id") == ("session-1" if begun else None), seen.method
            expected = MODERN if seen.method == "server/discover" else LEGACY if begun else None
            assert seen.headers.get("mcp-protocol-version") == expected, seen.method
        assert server.methods()[-1] == "DELETE"
        assert server.open_sessions == set()

    def test_initialized_has_arrived_before_anything_else_is_sent(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        accept, accepted = threading.Event(), []

        def slowly(exchange: Exchange) -> None:
            accept.wait(10)
            accepted.append("tools/list" not in server.methods())
            exchange.body(b"", status=202)

        server.on["notifications/initialized"] = slowly
        threading.Timer(0.2, accept.set).start()
        connect(server)
        assert accepted == [True]

    def test_a_stateless_server_sees_what_a_request_is_about(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN)
        client = connect(server)
        client.call_tool("echo", {})
        call = server.seen[-1]
        assert call.headers["mcp-method"] == "tools/call"
        assert call.headers["mcp-name"] == "echo"
        assert call.headers["mcp-protocol-version"] == MODERN
        assert call.headers["accept"] == "application/json, text/event-stream"
        client.disconnect()
        assert {seen.verb for seen in server.seen} == {"POST"}
        assert not any("mcp-session-id" in seen.headers for seen in server.seen)

    def test_headers_and_variables_of_the_configuration(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN", "secret-token\n")
        server = serve()
        client = connect(server, headers={"Authorization": "Bearer ${TOKEN}", "X-Team": "a", "Accept": "text/html"})
        assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer secret-token"}
        assert server.seen[0].headers["accept"] == "application/json, text/event-stream"
        assert "secret-token" not in repr(client.transport)


class TestWhatTheServerSays:
    def test_a_change_that_is_announced_on_the_stream_is_noticed(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.tools.append({"name": "new", "inputSchema": {"type": "object"}})
        server.outbox.put({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        assert wait_until(lambda: "new" in [tool.name for tool in client.list_tools()])

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


class TestTheOldTransport:
    def test_it_is_found_out(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        refuse = server.on.setdefault("initialize", lambda exchange: refused(server, exchange))
        server.on["server/discover"] = refuse
        client = connect(server)
        assert client.protocol_version == "2024-11-05"
        assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert {seen.path for seen in server.of("tools/call")} == {"/messages?id=1"}

    def test_its_connections_are_used_again(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        client = connect(server, type="sse")
        ports = set()

        def note(exchange: Exchange) -> None:
            ports.add(exchange._handler.client_address[1])
            server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = note
        for _ in range(30):
            client.call_tool("echo", {})
        assert len(ports) < 5

    @pytest.mark.parametrize(
        ("endpoint", "said"),
        [
            ("http://127.0.0.1:9/messages", "to another place, which is not trusted"),
            ("//evil.example/messages", "to another place, which is not trusted"),
        ],
    )
    def test_messages_go_nowhere_else(self, endpoint: str, said: str, serve: Serve) -> None:
        def elsewhere(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event(endpoint, event="endpoint")
            exchange.wait_for_client_to_leave()

        server = serve(era="2024-11-05", on={"GET": elsewhere})
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

    def test_one_that_never_says_where_to_send_messages(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gaia.mcp.client.transports.http.server_streams._ENDPOINT_SECONDS", 0.1)
        server = serve(era="2024-11-05", on={"GET": lambda exchange: exchange.wait_for_client_to_leave()})
        client = MCPClient.from_config("web", {"url": server.url, "type": "sse"})
        assert not client.connect()
        assert "does not say where to send messages" in str(client.last_error)
        client.disconnect()

    def test_the_end_of_the_stream_is_the_end_of_the_server(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        client = connect(server, type="sse", restart={"initialDelay": 0.05})
        server.outbox.put(None)
        assert wait_until(lambda: client.status.restarts == 1)
        assert "content" in client.call_tool("echo", {})

    def test_a_configuration_may_say_it(self, serve: Serve, connect: Connect) -> None:
        server = serve(era="2024-11-05")
        client = connect(server, type="sse")
        assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert server.methods()[:2] == ["GET", "initialize"]


def refused(server: ScriptedServer, exchange: Exchange) -> None:
    if exchange.seen.path == "/mcp":
        exchange.body(b"", status=405)
    else:
        server._answer(exchange)
