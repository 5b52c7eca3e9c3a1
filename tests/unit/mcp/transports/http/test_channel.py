"""One server over HTTP: calls beside each other, what is given up, and what becomes of sessions."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import pytest

from gaia.mcp import MCPClient
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.supervision.events import Event, ServerState, StateChanged
from gaia.mcp.transports.http.transport import HttpTransport
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.protocol.test_request_headers import REGION, marked, schema
from tests.unit.mcp.transports.http.conftest import (
    ERAS,
    TEXT,
    Connect,
    Hang,
    Serve,
    answer_in_a_stream,
    text_of,
    threads,
)
from tests.unit.mcp.transports.http.test_callers_exchange import holds_nothing
from tests.waiting import PATIENCE, wait_until

QUICK = {"initialDelay": 0.05, "maxDelay": 0.1}


class TestCalls:
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

    def test_initialized_has_arrived_before_anything_else_is_sent(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        accept, accepted = threading.Event(), []

        def slowly(exchange: Exchange) -> None:
            accept.wait(PATIENCE)
            accepted.append("tools/list" not in server.methods())
            exchange.body(b"", status=202)

        server.on["notifications/initialized"] = slowly
        threading.Timer(0.2, accept.set).start()
        connect(server)
        assert accepted == [True]

    def test_a_tool_that_cannot_be_called_is_not_offered(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = {"name": "bad", "inputSchema": schema(a=marked(kind="number"))}
        client = connect(serve(era=MODERN, tools=[REGION, bad]))
        assert [tool.name for tool in client.list_tools()] == ["deploy"]
        (record,) = [record for record in caplog.records if "tool_excluded" in record.getMessage()]
        assert "'bad'" in record.getMessage()
        assert "only a string, integer, boolean can be a header" in record.getMessage()

    def test_a_server_of_the_other_era_knows_no_such_marks(self, serve: Serve, connect: Connect) -> None:
        bad = {"name": "bad", "inputSchema": schema(a=marked(kind="number"))}
        assert [tool.name for tool in connect(serve(tools=[bad])).list_tools()] == ["bad"]


class TestSubscriptions:
    def test_one_whose_stream_breaks_is_renewed(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, changes={"listChanged": True})
        server.on["subscriptions/listen"] = lambda exchange: (exchange.begin_stream(), exchange.drop())
        connect(server, healthInterval=0.5)
        ids = {server.wait_for("subscriptions/listen").body["id"] for _ in range(4)}
        assert len(ids) == 4

    def test_that_tells_at_once_that_the_server_is_gone(self, connect: Connect) -> None:
        with ScriptedServer(era=MODERN, changes={"listChanged": True}).serving() as server:
            server.on["subscriptions/listen"] = lambda exchange: exchange.wait_for_client_to_leave()
            client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})
            server.wait_for("subscriptions/listen")
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        client.disconnect()

    def test_what_comes_on_it_is_noticed_and_it_takes_no_connection_from_calls(self, serve: Serve) -> None:
        server = serve(era=MODERN, changes={"listChanged": True})
        listening, changed = threading.Event(), threading.Event()

        def listen(exchange: Exchange) -> None:
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": exchange.id}}
            exchange.begin_stream()
            exchange.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta})
            listening.set()
            changed.wait(PATIENCE)
            exchange.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})
            exchange.wait_for_client_to_leave()

        server.on["subscriptions/listen"] = listen
        with MCPClient("web", HttpTransport(server.url, max_connections=1)) as client:
            assert listening.wait(PATIENCE)
            assert text_of(client.call_tool("echo", {"text": "hi"}, timeout=5)) == "hi"
            server.tools.append({"name": "new", "inputSchema": {"type": "object"}})
            changed.set()
            assert wait_until(lambda: "new" in [tool.name for tool in client.list_tools()])


class TestGivingUp:
    """A call that nobody waits for releases its thread and its connection."""

    @ERAS
    @pytest.mark.parametrize("streaming", [False, True])
    def test_a_call_that_times_out(self, era: str, streaming: bool, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client, hang = connect(server), Hang(server, Exchange.begin_stream if streaming else bool)
        result = client.call_tool("echo", {}, timeout=0.2)
        assert (result["error_type"], result["delivery"]) == ("timeout", "unknown")
        assert hang.left.get(timeout=PATIENCE)
        # Closing the stream is the notice in the stateless era; before, there is one to be sent.
        if era == LEGACY:
            notice = server.wait_for("notifications/cancelled")
            assert notice.body["params"]["requestId"] == server.of("tools/call")[0].body["id"]
        else:
            assert "notifications/cancelled" not in server.methods()
        del server.on["tools/call"]
        assert not client.call_tool("echo", {}).is_error
        assert wait_until(lambda: holds_nothing(client))

    def test_a_server_that_takes_no_more_bytes(self, server: ScriptedServer, client: MCPClient) -> None:
        assert wait_until(lambda: bool(server.of("GET")))
        stop = threading.Event()
        server.stop_reading = stop
        result = client.call_tool("echo", {"text": "x" * 20_000_000}, timeout=0.5)
        assert (result["error_type"], result["delivery"]) == ("timeout", "unknown")
        stop.set()

    @ERAS
    def test_disconnecting_does_not_wait_for_a_hung_call(self, era: str, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.wait_for_client_to_leave()
        future = client.submit_tool("echo", {})
        server.wait_for("tools/call")
        began = time.monotonic()
        client.disconnect()
        assert time.monotonic() - began < 1.5
        assert "closed" in str(future.exception(PATIENCE))
        assert threads() == []

    def test_a_probe_that_is_not_answered(self, server: ScriptedServer, connect: Connect) -> None:
        hang = Hang(server, method="server/discover")
        assert connect(server, probeTimeout=0.2).protocol_version == LEGACY
        assert hang.left.get(timeout=PATIENCE)

    @pytest.mark.parametrize("max_connections", [1, 100])
    def test_streams_that_stay_open_after_the_answer_neither_pile_up_nor_take_a_connection_from_calls(
        self, max_connections: int, server: ScriptedServer
    ) -> None:
        with MCPClient("web", HttpTransport(server.url, max_connections=max_connections)) as client:
            hang = Hang(server, answer_in_a_stream)
            for _ in range(12):
                assert client.call_tool("echo", {}, timeout=5) == TEXT
            # Two for calls, four for ends of streams, one each for notifications, the server's stream and deadlines.
            assert wait_until(lambda: len(threads()) <= 9)
            assert all(hang.left.get(timeout=PATIENCE) for _ in range(8))


class TestSessions:
    def test_one_that_was_forgotten_is_opened_anew_and_the_call_is_made_in_it(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})
        server.open_sessions.clear()
        assert not client.call_tool("echo", {"text": "hi"}).is_error
        assert [seen.headers["mcp-session-id"] for seen in server.of("tools/call")] == ["session-1", "session-2"]
        assert (client.status.generation, client.status.restarts) == (2, 1)

    def test_calls_that_the_server_is_still_working_on_are_not_lost_with_it(
        self, server: ScriptedServer, client: MCPClient
    ) -> None:
        working, forgotten = threading.Event(), threading.Event()

        def work(exchange: Exchange) -> None:
            if exchange.arguments["text"] == "long":
                working.set()
                forgotten.wait(PATIENCE)
            elif not forgotten.is_set():
                forgotten.set()
                exchange.json({}, status=404)
                return
            server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = work
        long = client.submit_tool("echo", {"text": "long"})
        assert working.wait(PATIENCE)
        assert client.call_tool("echo", {"text": "short"}) == TEXT
        assert long.result(PATIENCE) == TEXT
        assert client.status.generation == 2

    def test_a_server_that_forgets_each_session_is_not_asked_in_a_tight_loop(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60, "maxRestarts": 3})
        server.on["tools/call"] = lambda exchange: exchange.json({}, status=404)
        call = client.submit_tool("echo", {}, timeout=60)
        # The first start, three new sessions, and the first restart, which is immediate.
        assert wait_until(lambda: len(server.of("initialize")) >= 5 and bool(client.status.retry_in))
        assert len(server.of("initialize")) == 5
        assert not call.done()
        client.disconnect()


class TestTheServer:
    def test_one_that_cannot_be_reached_is_a_failure_to_connect(self) -> None:
        client = MCPClient.from_config("web", {"url": "http://127.0.0.1:9/mcp"})
        assert client.connect() is False
        assert client.last_error is not None
        assert "the server cannot be reached" in client.last_error
        assert client.state is ServerState.FAILED
        client.disconnect()

    @ERAS
    def test_one_that_comes_back_gets_the_calls_that_waited(self, era: str, connect: Connect) -> None:
        server = ScriptedServer(era=era)
        states: list[ServerState] = []

        def note(event: Event) -> None:
            if isinstance(event, StateChanged):
                states.append(event.new)

        with server.serving():
            client = connect(server, restart=QUICK)
            client.subscribe(note)
            port = int(server.url.split(":")[2].split("/")[0])
        future = client.submit_tool("echo", {"text": "hi"}, timeout=20)
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        again = ScriptedServer(era=era)
        with again.serving(port):
            assert future.result(PATIENCE) == TEXT
            assert client.state is ServerState.READY
            assert wait_until(lambda: ServerState.RESTARTING in states)
            client.disconnect()

    def test_one_that_stays_away_is_given_up_for_a_while(self, connect: Connect) -> None:
        with ScriptedServer().serving() as server:
            client = connect(server, restart={**QUICK, "maxRestarts": 2, "cooldown": 60})
        result = client.call_tool("echo", {}, timeout=20)
        assert result["error_type"] == "server_unavailable"
        assert "cannot be reached" in result["error"]
        client.disconnect()


@pytest.mark.parametrize("drip", [None, b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_the_answer_to_the_goodbye_is_not_waited_for(
    drip: bytes | None, server: ScriptedServer, client: MCPClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaia.mcp.transports.http.channel._DELETE_SECONDS", 0.2)
    left: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def go_on(exchange: Exchange) -> None:
        connection = exchange._handler.connection
        exchange._handler.close_connection = True
        if drip is None:
            left.put(exchange.wait_for_client_to_leave())
            return
        try:
            connection.sendall(drip)
            for _ in range(200):
                connection.sendall(b"x")
                server.stopping.wait(0.05)
            left.put(False)
        except OSError:
            left.put(True)

    server.on["DELETE"] = go_on
    client.disconnect()
    assert threads() == []
    assert left.get(timeout=PATIENCE), "the client went away before the end"


def test_a_server_that_asks_and_takes_no_answers_fills_no_memory(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    flooded, go = threading.Event(), threading.Event()

    def flood(exchange: Exchange) -> None:
        exchange.begin_stream()
        for number in range(3_000):
            exchange.event({"jsonrpc": "2.0", "id": f"{number}-{'x' * 1000}", "method": "ping"})
        flooded.set()
        exchange.wait_for_client_to_leave()

    def answer(exchange: Exchange) -> None:
        if exchange.seen.verb == "POST" and "method" not in exchange.seen.body:
            go.wait(PATIENCE)
        known(exchange)

    known = server.handle
    server.handle = answer  # type: ignore[method-assign]
    server.on["GET"] = flood
    client = connect(server)
    assert flooded.wait(PATIENCE)
    assert wait_until(lambda: "answers_dropped" in caplog.text)
    # Those that wait, those that four threads carry, and the call.
    assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
    go.set()
    assert wait_until(lambda: any("method" not in seen.body for seen in server.seen))
    client.disconnect()
    assert sum("result" in seen.body for seen in server.seen) <= 300
    assert caplog.text.count("answers_dropped") == 1


MOST = 8
CALLS = 500


def ours() -> list[str]:
    """The names of all threads of gaia's."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("gaia-", "mcp-"))]


class Slow:
    """Answers no call before it is told to."""

    def __init__(self, server: ScriptedServer) -> None:
        self.go = threading.Event()
        self._server = server
        self._lock = threading.Lock()
        self.waiting = 0
        server.on["tools/call"] = self._answer

    def _answer(self, exchange: Exchange) -> None:
        with self._lock:
            self.waiting += 1
        self.go.wait(PATIENCE)
        self._server.respond(exchange, exchange.answer(TEXT))


@ERAS
def test_submitted_calls_need_no_thread_each(era: str, serve: Serve, connect: Connect) -> None:
    server = serve(era=era, changes={"listChanged": True})
    client, slow = connect(server), Slow(server)
    futures = [client.submit_tool("echo", {}) for _ in range(CALLS)]
    assert wait_until(lambda: slow.waiting == 100), "as many as there may be connections"
    assert len(ours()) <= MOST, ours()
    slow.go.set()
    assert [future.result(PATIENCE) for future in futures] == [TEXT] * CALLS


def test_neither_do_awaited_ones_that_report_progress(serve: Serve) -> None:
    server = serve(answer_in_streams=True)
    most: list[str] = []

    async def main() -> None:
        nonlocal most
        async with AsyncMCPClient.from_config("web", {"url": server.url}) as client:
            slow = Slow(server)
            calls = [
                asyncio.create_task(client.call_tool("echo", {}, on_progress=lambda *_: None)) for _ in range(CALLS)
            ]
            while slow.waiting < 100:
                await asyncio.sleep(0)
            most = ours()
            slow.go.set()
            assert await asyncio.gather(*calls) == [TEXT] * CALLS

    asyncio.run(main())
    assert len(most) <= MOST, most


def test_nor_do_the_streams_and_subscriptions_of_many_servers(serve: Serve, connect: Connect) -> None:

    def stay(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.wait_for_client_to_leave()

    clients: list[MCPClient] = []
    for number in range(30):
        server = serve(era=MODERN, changes={"listChanged": True}) if number % 2 else serve()
        server.on["subscriptions/listen"] = stay
        clients.append(connect(server))
        assert server.wait_for("subscriptions/listen" if number % 2 else "GET")
    supervisors = [name for name in ours() if name.endswith("-supervisor")]
    assert len(supervisors) == len(clients)
    assert len(ours()) - len(supervisors) <= MOST, ours()
