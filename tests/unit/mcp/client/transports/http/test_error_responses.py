"""What goes wrong with single requests, and with the server as a whole."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from gaia.mcp import MCPClient
from gaia.mcp.client.supervision.events import Event, ServerState, StateChanged
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.client.transports.http.conftest import Connect, Serve
from tests.waiting import wait_until

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
TEXT = {"content": [{"type": "text", "text": "hi"}]}
QUICK = {"initialDelay": 0.05, "maxDelay": 0.1}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "-http-" in thread.name]


class TestOneRequest:
    """It fails by itself; the next one succeeds on the same connection."""

    @pytest.mark.parametrize(
        ("action", "error_type", "said"),
        [
            (lambda exchange: exchange.body(b"<h1>Oh</h1>", "text/html", 500), "http", "500 Internal Server Error: Oh"),
            (lambda exchange: exchange.body(b"", status=403), "http", "403 Forbidden"),
            (lambda exchange: exchange.body(b"", status=599), "http", "answered 599"),
            (lambda exchange: exchange.body(b"hello", "text/plain"), "http", "text/plain, which is no MCP: hello"),
            (lambda exchange: exchange.body(b"{}"), "http", "no content type"),
            (lambda exchange: exchange.body(b"", status=202), "http", "will not answer"),
            (lambda exchange: exchange.body(b"{", "application/json"), "invalid_response", "not the answer"),
            (lambda exchange: exchange.json({"jsonrpc": "2.0", "id": -5, "result": {}}), "invalid_response", "not the"),
            (lambda exchange: exchange.json({"a": "x" * 200_000}), "invalid_response", "maxMessageBytes"),
            (lambda exchange: exchange.stream({"a": "x" * 200_000}), "invalid_response", "cannot be read"),
            (lambda exchange: exchange.stream(), "server_crashed", "without the answer"),
            (lambda exchange: exchange.drop(), "server_crashed", "the connection broke"),
            (lambda exchange: (exchange.begin_stream(), exchange.drop()), "server_crashed", "the connection broke"),
            (
                lambda exchange: exchange.body(b"", status=302, headers={"Location": "http://127.0.0.1:9/?key=0"}),
                "http",
                "redirects to http://127.0.0.1:9/, which is not followed",
            ),
        ],
    )
    def test_its_call_says_what_happened(
        self, action: Any, error_type: str, said: str, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, maxMessageBytes=100_000)
        server.on["tools/call"] = action
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == (error_type, "unknown")
        assert said in result["error"]
        del server.on["tools/call"]
        assert "content" in client.call_tool("echo", {})
        assert client.status.generation == 1

    def test_one_that_nobody_is_let_in_for_says_how_to_log_in(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=401)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == ("needs_authorization", "not_sent")
        assert "gaia mcp login web" in result["error"]

    @ERAS
    def test_a_lost_answer_is_asked_for_again_if_that_is_harmless(
        self, era: str, serve: Serve, connect: Connect
    ) -> None:
        server = serve(era=era)
        client = connect(server)

        def first_drop(exchange: Exchange) -> None:
            if len(server.of("tools/call")) == 1:
                exchange.drop()
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = first_drop
        assert client.call_tool("read", {})["content"] == TEXT["content"]
        first, second = server.of("tools/call")
        assert first.body["id"] != second.body["id"]

    def test_it_is_not_asked_for_a_third_time(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.drop()
        assert client.call_tool("read", {})["error_type"] == "server_crashed"
        assert len(server.of("tools/call")) == 2

    def test_what_may_have_been_done_is_not_done_again(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.drop()
        assert client.call_tool("echo", {})["delivery"] == "unknown"
        assert len(server.of("tools/call")) == 1

    def test_a_stream_that_breaks_is_continued_where_it_broke(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        call: list[Any] = []

        def begin(exchange: Exchange) -> None:
            call.append(exchange.id)
            exchange.begin_stream()
            exchange.event("", id="7", retry="300")
            exchange.end_stream()
            call.append(time.monotonic())

        def go_on(exchange: Exchange) -> None:
            call.append(time.monotonic())
            exchange.stream({"jsonrpc": "2.0", "id": call[0], "result": TEXT})

        assert server.wait_for("GET")
        server.on |= {"tools/call": begin, "GET": go_on}
        assert client.call_tool("echo", {}) == TEXT
        assert server.of("GET")[-1].headers["last-event-id"] == "7"
        assert 0.25 < call[2] - call[1] < 0.6

    def test_a_stream_that_cannot_be_continued_is_lost(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        assert server.wait_for("GET")

        def begin(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("", id="7", retry="10")
            exchange.end_stream()

        server.on |= {"tools/call": begin, "GET": lambda exchange: exchange.body(b"", status=500)}
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
        assert "resuming was answered with 500" in result["error"]
        assert len(server.of("GET")) == 4

    def test_nor_is_it_waited_for_by_somebody_who_has_left(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def begin(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("", id="7", retry="60000")
            exchange.end_stream()

        server.on["tools/call"] = begin
        assert client.call_tool("echo", {}, timeout=0.2)["error_type"] == "timeout"
        began = time.monotonic()
        client.disconnect()
        assert time.monotonic() - began < 1.5
        assert threads() == []

    def test_redirects_within_the_server_are_followed(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def moved(exchange: Exchange) -> None:
            if exchange.seen.path == "/mcp":
                exchange.body(b"", status=307, headers={"Location": "/mcp/"})
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = moved
        assert client.call_tool("echo", {}) == TEXT

    def test_and_not_for_ever(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=308, headers={"Location": "/mcp"})
        assert "redirects more than" in client.call_tool("echo", {})["error"]


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

    def test_what_comes_on_it_is_noticed(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, changes={"listChanged": True})
        changed = threading.Event()

        def listen(exchange: Exchange) -> None:
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": exchange.id}}
            exchange.begin_stream()
            exchange.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta})
            changed.wait(10)
            exchange.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})
            exchange.wait_for_client_to_leave()

        server.on["subscriptions/listen"] = listen
        client = connect(server)
        server.wait_for("subscriptions/listen")
        server.tools.append({"name": "new", "inputSchema": {"type": "object"}})
        changed.set()
        assert wait_until(lambda: "new" in [tool.name for tool in client.list_tools()])


class TestGivingUp:
    """A call that nobody waits for releases its thread and its connection."""

    @ERAS
    @pytest.mark.parametrize("streaming", [False, True])
    def test_a_call_that_times_out(self, era: str, streaming: bool, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client = connect(server)
        left: list[bool] = []

        def hang(exchange: Exchange) -> None:
            if streaming:
                exchange.begin_stream()
            left.append(exchange.wait_for_client_to_leave())

        server.on["tools/call"] = hang
        assert client.call_tool("echo", {}, timeout=0.2)["error_type"] == "timeout"
        assert wait_until(lambda: left == [True])
        # Closing the stream is the notice in the stateless era; before, there is one to be sent.
        if era == LEGACY:
            notice = server.wait_for("notifications/cancelled")
            assert notice.body["params"]["requestId"] == server.of("tools/call")[0].body["id"]
        else:
            assert "notifications/cancelled" not in server.methods()
        del server.on["tools/call"]
        assert "content" in client.call_tool("echo", {})

    def test_a_server_that_takes_no_more_bytes(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
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
        assert "closed" in str(future.exception(5))
        assert threads() == []

    def test_a_probe_that_is_not_answered(self, serve: Serve, connect: Connect) -> None:
        left: list[bool] = []
        server = serve(on={"server/discover": lambda exchange: left.append(exchange.wait_for_client_to_leave())})
        client = connect(server, probeTimeout=0.2)
        assert client.protocol_version == LEGACY
        assert wait_until(lambda: left == [True])

    def test_streams_that_stay_open_after_the_answer_do_not_pile_up(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def stay(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event(exchange.answer(TEXT))
            exchange.wait_for_client_to_leave()

        server.on["tools/call"] = stay
        for _ in range(12):
            assert client.call_tool("echo", {}) == TEXT
        assert wait_until(lambda: len(threads()) <= 8)


class TestSessions:
    def test_one_that_was_forgotten_is_opened_anew_and_the_call_is_made_in_it(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})
        server.open_sessions.clear()
        assert "content" in client.call_tool("echo", {"text": "hi"})
        assert [seen.headers["mcp-session-id"] for seen in server.of("tools/call")] == ["session-1", "session-2"]
        assert (client.status.generation, client.status.restarts) == (2, 1)

    def test_calls_that_the_server_is_still_working_on_are_not_lost_with_it(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server)
        working, forgotten = threading.Event(), threading.Event()

        def work(exchange: Exchange) -> None:
            if exchange.arguments["text"] == "long":
                working.set()
                forgotten.wait(10)
            elif not forgotten.is_set():
                forgotten.set()
                exchange.json({}, status=404)
                return
            server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = work
        long = client.submit_tool("echo", {"text": "long"})
        assert working.wait(10)
        assert client.call_tool("echo", {"text": "short"}) == TEXT
        assert long.result(10) == TEXT
        assert client.status.generation == 2

    def test_some_servers_say_it_with_400(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})

        def example(exchange: Exchange) -> None:
            if exchange.seen.headers["mcp-session-id"] == "session-1":
                exchange.json(exchange.error(-32000, "Bad Request: No valid session ID provided"), status=400)
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = example
        assert client.call_tool("echo", {}) == TEXT

    def test_a_server_that_forgets_each_session_is_not_asked_in_a_tight_loop(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60, "maxRestarts": 3})
        server.on["tools/call"] = lambda exchange: exchange.json({}, status=404)
        result = client.call_tool("echo", {}, timeout=1)
        assert result == {**result, "error_type": "timeout", "delivery": "not_sent"}
        assert len(server.of("initialize")) == 4

    def test_the_stream_of_the_server_tells_it_too(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.wait_for("GET")
        server.open_sessions.clear()
        server.on["GET"] = lambda exchange: exchange.body(b"", status=404)
        server.outbox.put(None)
        assert wait_until(lambda: client.status.restarts == 1)

    def test_a_404_without_a_session_is_no_end_of_one(self, serve: Serve, connect: Connect) -> None:
        server = serve(sessions=False)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=404)
        assert client.call_tool("echo", {})["error_type"] == "http"
        assert client.status.generation == 1

    def test_a_server_without_a_stream_of_its_own_may_say_so_with_404(self, serve: Serve, connect: Connect) -> None:
        server = serve(on={"GET": lambda exchange: exchange.body(b"", status=404)})
        client = connect(server)
        server.wait_for("GET")
        assert "content" in client.call_tool("echo", {})
        assert client.status.generation == 1


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
            assert future.result(20) == TEXT
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


class TestSecrets:
    def test_what_a_server_repeats_of_them_is_masked(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, headers={"Authorization": "Bearer abcdef-secret"})
        echoed = b"you sent abcdef-secret"
        server.on["tools/call"] = lambda exchange: exchange.body(echoed, "text/plain", 400)
        assert client.call_tool("echo", {})["error"].endswith("400 Bad Request: you sent ***")

    def test_a_user_and_a_password_in_the_url_become_a_header(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serve()
        server.url = server.url.replace("http://", "http://me:hunter22@")
        with caplog.at_level("DEBUG"):
            client = connect(server)
            server.on["tools/call"] = lambda exchange: exchange.body(b"no hunter22", "text/plain", 400)
            assert "hunter22" not in client.call_tool("echo", {})["error"]
        assert server.seen[0].headers["authorization"] == "Basic bWU6aHVudGVyMjI="
        assert "hunter22" not in caplog.text + repr(client.transport)


class TestMistakes:
    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"url": "ftp://example.com"}, "url: must begin with http:// or https:// and name a host"),
            ({"url": "https://"}, "url: must begin with http:// or https:// and name a host"),
            ({"url": "https://example.com:port/"}, "url: Port could not be cast"),
            ({"url": "http://127.0.0.1:9", "headers": {"a b": "c"}}, "headers: 'a b' is not the name of a header"),
            ({"url": "http://127.0.0.1:9", "headers": {"a": "secret\r\nb: c"}}, "headers.a: the value has characters"),
            ({"url": "http://\u2488.com/"}, "url: Invalid IDNA hostname"),
            ({"url": "http://127.0.0.1:9/${NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not set"),
        ],
    )
    def test_a_configuration_that_cannot_be_used_says_why(self, config: Any, said: str) -> None:
        client = MCPClient.from_config("web", config)
        assert client.connect() is False
        assert client.last_error is not None
        assert said in client.last_error
        assert "secret" not in client.last_error
        client.disconnect()
