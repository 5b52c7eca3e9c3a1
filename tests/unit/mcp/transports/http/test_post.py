"""One message on its way, and all that may come back."""

from __future__ import annotations

import gzip
import logging
import math
import queue
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from gaia.http.connection import HttpConnection
from gaia.http.errors import ConnectFailed
from gaia.http.request import HttpSettings
from gaia.http.url import Url
from gaia.http.waits import run
from gaia.mcp import MCPClient
from gaia.mcp.errors import NeedsAuthorization, ServerCrashed
from gaia.mcp.protocol.request_headers import RequestHeaders, encode_value
from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.http.authorized_requests import AuthorizedRequests
from gaia.mcp.transports.http.http_session import Exchanges, HttpSession
from gaia.mcp.transports.http.post import Post
from gaia.mcp.transports.http.transport import HttpTransport
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import DaemonPool
from tests.servers.http_server import ENDLESS, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.protocol.test_request_headers import REGION, schema
from tests.unit.mcp.transports.http.conftest import ERAS, TEXT, Connect, Serve, text_of, threads
from tests.waiting import PATIENCE

QUICK = {"initialDelay": 0.05, "maxDelay": 0.1}


class TestAnswers:
    @ERAS
    def test_an_error_of_the_server_arrives_whatever_its_status(self, era: str, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32602, "bad"), status=400)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32602)

    def test_an_error_without_our_id_is_the_answer_to_the_request(
        self, server: ScriptedServer, client: MCPClient
    ) -> None:
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32600, "no") | {"id": None}, 400)
        assert client.call_tool("echo", {})["code"] == -32600


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
        assert not client.call_tool("echo", {}).is_error
        assert client.status.generation == 1

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

    def test_a_stream_that_cannot_be_continued_is_lost(self, server: ScriptedServer, client: MCPClient) -> None:
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

    def test_nor_is_it_waited_for_by_somebody_who_has_left(self, server: ScriptedServer, client: MCPClient) -> None:

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

    def test_redirects_within_the_server_are_followed(self, server: ScriptedServer, client: MCPClient) -> None:

        def moved(exchange: Exchange) -> None:
            if exchange.seen.path == "/mcp":
                exchange.body(b"", status=307, headers={"Location": "/mcp/"})
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = moved
        assert client.call_tool("echo", {}) == TEXT

    def test_and_not_for_ever(self, server: ScriptedServer, client: MCPClient) -> None:
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=308, headers={"Location": "/mcp"})
        assert "redirects more than" in client.call_tool("echo", {})["error"]


class TestWhatIsRead:
    """However much the server sends: `ENDLESS` is what it would have sent."""

    def test_an_answer_is_read_up_to_its_limit(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, maxMessageBytes=1024 * 1024)
        written: queue.SimpleQueue[int] = queue.SimpleQueue()
        server.on["tools/call"] = lambda exchange: written.put(exchange.endless())
        result = client.call_tool("echo", {})
        assert (result["error_type"], "maxMessageBytes" in result["error"]) == ("invalid_response", True)
        assert written.get(timeout=PATIENCE) < ENDLESS / 4

    @pytest.mark.parametrize("status", [307, 401, 500])
    def test_of_a_refusal_only_the_beginning_is_read(
        self, status: int, server: ScriptedServer, client: MCPClient
    ) -> None:
        written: queue.SimpleQueue[int] = queue.SimpleQueue()

        def refuse(exchange: Exchange) -> None:
            if exchange.seen.path == "/mcp":
                written.put(exchange.endless(status, headers={"Location": "/elsewhere"}))
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = refuse
        result = client.call_tool("echo", {})
        assert result == TEXT if status == 307 else "error" in result
        assert written.get(timeout=PATIENCE) < ENDLESS / 4

    def test_a_login_reads_as_little_of_it(self, serve: Serve) -> None:
        class Login(httpx2.Auth):
            def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
                response = yield request
                if response.status_code == 401:
                    request.headers["Authorization"] = "Bearer new"
                    yield request

        server = serve()
        written: queue.SimpleQueue[int] = queue.SimpleQueue()

        def refuse(exchange: Exchange) -> None:
            if "authorization" not in exchange.seen.headers:
                written.put(exchange.endless(401))
            else:
                server.respond(exchange, exchange.answer(TEXT))

        with MCPClient("web", HttpTransport(server.url, auth=Login())) as client:
            server.on["tools/call"] = refuse
            assert client.call_tool("echo", {}) == TEXT
        assert written.get(timeout=PATIENCE) < ENDLESS / 4

    def test_a_small_error_that_stands_for_much_is_no_work(self, server: ScriptedServer, client: MCPClient) -> None:
        bomb = gzip.compress(b"<script" * 150_000)
        gzipped = {"Content-Encoding": "gzip"}
        server.on["tools/call"] = lambda exchange: exchange.body(bomb, "text/html", 500, gzipped)
        began = time.process_time()
        assert client.call_tool("echo", {})["error_type"] == "http"
        assert time.process_time() - began < 5

    def test_a_stream_is_text_whatever_charset_it_names(self, server: ScriptedServer, client: MCPClient) -> None:

        def answer(exchange: Exchange) -> None:
            exchange.begin_stream(kind="text/event-stream; charset=bz2")
            exchange.chunk(b"\xef\xbb\xbf")
            exchange.event(exchange.answer(TEXT))
            exchange.end_stream()

        server.on["tools/call"] = answer
        assert client.call_tool("echo", {}) == TEXT


class TestUnawaited:
    def test_a_notification_that_is_not_accepted_holds_up_nothing_for_long(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.post._UNAWAITED_SECONDS", 0.2)
        server = serve()
        left: queue.SimpleQueue[bool] = queue.SimpleQueue()
        server.on["notifications/initialized"] = lambda exchange: left.put(exchange.wait_for_client_to_leave())
        client = MCPClient.from_config("web", {"url": server.url})
        with caplog.at_level(logging.WARNING), client:
            assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
            assert left.get(timeout=PATIENCE)
        assert "not accepted within 0.2 s" in caplog.text


class TestConnecting:
    def test_a_refused_connection_does_not_end_calls_that_are_under_way(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.channel._DRAIN_SECONDS", 0.1)
        server = serve()
        client = connect(server)
        assert server.wait_for("GET")
        go = threading.Event()

        def slow(exchange: Exchange) -> None:
            if exchange.arguments == {"text": "slow"}:
                go.wait(PATIENCE)
            server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = slow
        running = client.submit_tool("echo", {"text": "slow"})
        assert server.wait_for("tools/call")
        with server.refusing_connections():
            refused = client.submit_tool("echo", {"text": "other"})
            # Longer than the channel would wait for the end of the first call.
            with pytest.raises(TimeoutError):
                refused.result(0.5)
            go.set()
            assert running.result(PATIENCE) == TEXT
        assert refused.result(PATIENCE) == TEXT
        assert client.status.restarts <= 1
        assert len(server.of("tools/call")) == 2

    def test_when_nothing_else_is_under_way_the_server_is_gone(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, restart={"restart": "never"})
        assert server.wait_for("GET")
        server.on["tools/call"] = lambda exchange: exchange.drop()
        with server.refusing_connections():
            client.call_tool("echo", {})
            result = client.call_tool("echo", {}, timeout=5)
        assert (result["error_type"], result["delivery"]) == ("server_unavailable", "not_sent")

    @pytest.mark.parametrize("is_killed", [True, False])
    def test_a_call_is_repeated_only_at_a_server_that_lives(
        self, serve: Serve, connect: Connect, is_killed: bool
    ) -> None:
        """The system of a server that is being killed accepts connections for a moment, and resets them then."""
        server, dying = serve(), threading.Event()

        def unless_dying(exchange: Exchange) -> None:
            if dying.is_set():
                exchange.drop()
            else:
                server.respond(exchange, exchange.answer(TEXT))

        def kill(exchange: Exchange) -> None:
            server.on["tools/call"] = unless_dying
            if is_killed:
                dying.set()
            exchange.drop()

        def start(exchange: Exchange) -> None:
            dying.clear()
            del server.on["initialize"]
            server.handle(exchange)

        client = connect(server, restart=QUICK)
        server.on.update({"tools/call": kill, "ping": unless_dying, "initialize": start})
        assert client.call_tool("read", {}, timeout=PATIENCE) == TEXT
        assert client.status.restarts == is_killed
        assert len(server.of("tools/call")) == 2

    def test_an_idle_connection_that_a_server_has_closed_does_not_end_the_server(
        self, serve: Serve, connect: Connect
    ) -> None:
        server = serve()

        def once(exchange: Exchange) -> None:
            del server.on[exchange.seen.method]
            exchange.drop()

        client = connect(server)
        server.on.update({"tools/call": once, "ping": once})
        assert not client.call_tool("read", {}, timeout=PATIENCE).is_error
        assert client.status.restarts == 0


def test_a_call_that_a_host_refuses_waits_for_the_next_host(serve: Serve, connect: Connect) -> None:
    server = serve()
    clock = {"Gaia-Clock": "abc 1000"}
    client = connect(server, restart=QUICK)
    server.on["tools/call"] = lambda exchange: exchange.json(exchange.answer(TEXT), headers=clock)
    client.call_tool("echo", {})

    def refuse(exchange: Exchange) -> None:
        del server.on["tools/call"]
        exchange.json({"error": {"message": "the lease is over"}}, status=410)

    server.on["tools/call"] = refuse
    assert not client.call_tool("echo", {}, timeout=PATIENCE).is_error, "it need not be safe to repeat"
    assert client.status.restarts == 1


class TestHeaders:
    """Arguments as headers (2026-07-28, "Streamable HTTP": "Custom Headers")."""

    def test_arguments_are_sent_as_headers_too(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, tools=[REGION])
        client = connect(server)
        client.call_tool("deploy", {"region": "Zürich", "size": 3})
        (call,) = server.of("tools/call")
        assert call.headers["mcp-param-region"] == encode_value("Zürich")
        assert call.headers["mcp-param-size"] == "3"

    @pytest.mark.parametrize("answer_in_streams", [False, True])
    def test_a_call_whose_headers_are_outdated_is_sent_once_more_with_the_new_ones(
        self, answer_in_streams: bool, serve: Serve, connect: Connect
    ) -> None:
        server = serve(era=MODERN, tools=[{"name": "deploy", "inputSchema": schema(region={"type": "string"})}])
        server.answer_in_streams = answer_in_streams

        def strict(exchange: Exchange) -> None:
            if "mcp-param-region" in exchange.seen.headers:
                server.respond(exchange, exchange.answer(TEXT))
            else:
                exchange.json(exchange.error(-32020, "Header mismatch"), status=400)

        client = connect(server)
        server.on["tools/call"] = strict
        server.tools = [REGION]
        assert client.call_tool("deploy", {"region": "a"}) == TEXT
        assert len(server.of("tools/call")) == 2

    def test_and_not_if_nothing_has_changed(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, tools=[REGION])
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32020, "no"), status=400)
        result = client.call_tool("deploy", {"region": "a"})
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32020)
        assert len(server.of("tools/call")) == 1


def a_post(item: Any) -> Post:
    session = HttpSession("web", Url.parse("http://host/"), str, 1000, RequestHeaders(lambda *_: None))
    return Post(Mock(spec=Exchanges, session=session, lock=reentrant_lock()), item)


def a_call() -> Mock:
    frame = b'{"id": 1, "method": "tools/call", "params": {}}'
    never = {"deadline": math.inf, "last_deadline": math.inf, "headers": None, "repeated": False}
    return Mock(spec=Outgoing, id=1, method="tools/call", params={}, ended=False, frame=frame, **never)


def test_one_that_was_given_up_before_its_turn_is_not_even_asked_whether_it_may_be_sent() -> None:
    item, connection = Mock(spec=Outgoing), Mock(spec=HttpConnection)
    post = a_post(item)
    post.interrupt()
    run(post.exchange(connection))
    connection.request.assert_not_called()
    item.begin_write.assert_not_called()
    item.undo_write.assert_not_called()


@pytest.mark.parametrize(("status", "is_unsent"), [(307, True), (401, True), (200, False)])
def test_one_that_was_refused_before_the_connection_failed_was_not_sent(status: int, is_unsent: bool) -> None:
    item = a_call()
    post = a_post(item)

    async def send(*_: object, **hooks: Any) -> None:
        hooks["on_sending"]()
        hooks["on_status"](status)
        raise ConnectFailed("nobody listens")

    post._session.send = send  # type: ignore[assignment]
    channel: Mock = post._channel  # type: ignore[assignment]
    run(post.exchange(Mock(spec=HttpConnection)))
    assert item.undo_write.called is is_unsent
    assert channel.unreachable.called is is_unsent
    assert channel.request_failed.called is not is_unsent


def test_one_whose_deadline_has_passed_is_not_sent() -> None:
    item = a_call()
    item.deadline = item.last_deadline = time.monotonic()
    post = a_post(item)

    async def send(*_: object, **hooks: Any) -> None:
        hooks["on_sending"]()

    post._session.send = send  # type: ignore[assignment]
    run(post.exchange(Mock(spec=HttpConnection)))
    item.begin_write.assert_not_called()


@pytest.mark.parametrize(("is_gateway", "delivery"), [(True, "not_sent"), (False, "unknown")])
def test_a_call_that_a_gateway_refuses_by_a_status_has_reached_no_server(
    server: ScriptedServer, client: MCPClient, is_gateway: bool, delivery: str
) -> None:
    clock = {"Gaia-Clock": "abc 1000"} if is_gateway else {}
    server.on["tools/list"] = lambda exchange: exchange.json(exchange.answer({"tools": []}), headers=clock)
    assert client.list_tools(refresh=True) == []
    server.on["tools/call"] = lambda exchange: exchange.body(b"too much", status=429)
    result = client.call_tool("echo", {})
    assert (result["error_type"], result["delivery"]) == ("http", delivery)


class Gate(httpx2.Auth):
    """An authorization that waits where a test wants it to, and then gives up."""

    def __init__(self, *, after_refusal: bool) -> None:
        self.after_refusal = after_refusal
        self.closed = threading.Event()
        self.reached, self.go = threading.Event(), threading.Event()
        self.thread = threading.current_thread()

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self.closed.is_set() and not self.reached.is_set() and b"tools/call" in request.content:
            if self.after_refusal:
                yield request
            self.thread = threading.current_thread()
            self.reached.set()
            self.go.wait(PATIENCE)
            raise NeedsAuthorization("nobody is let in")
        yield request


@pytest.fixture
def logins(no_leaks: None) -> Iterator[DaemonPool]:
    pool = DaemonPool("logins", 1)
    yield pool
    assert pool.close(PATIENCE)


class TestWhatWasSentTwice:
    @pytest.mark.parametrize("interrupted", [True, False])
    def test_once_it_is_given_up_it_is_not_called_unsent(
        self, interrupted: bool, serve: Serve, logins: DaemonPool
    ) -> None:
        """By then it may be on its way over the next channel."""
        server = serve()
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=401)
        item, gate = a_call(), Gate(after_refusal=True)
        gate.closed.set()
        post = a_post(item)
        post._session.url, post._session.send = Url.parse(server.url), AuthorizedRequests(gate, logins)
        connection = HttpConnection(HttpSettings())
        thread = threading.Thread(target=run, args=(post.exchange(connection),))
        thread.start()
        assert gate.reached.wait(PATIENCE)
        if interrupted:
            post.interrupt()
        gate.go.set()
        thread.join(PATIENCE)
        connection.close()
        assert item.undo_write.called is not interrupted

    def test_a_call_that_a_late_thread_gives_up_is_not_written_again(
        self, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("_DRAIN_SECONDS", "_JOIN_SECONDS"):
            monkeypatch.setattr(f"gaia.mcp.transports.http.channel.{name}", 0.1)
        server, gate = serve(), Gate(after_refusal=False)
        restart = RestartPolicy(initial_delay=0.01, max_delay=0.02)
        client = MCPClient("web", HttpTransport(server.url, auth=gate), restart_policy=restart)

        def forget() -> None:
            server.open_sessions.clear()
            server.outbox.put(None)

        def keep(exchange: Exchange) -> None:
            exchange.wait_for_client_to_leave()

        def listen(exchange: Exchange) -> None:
            if not server._knows_session(exchange):
                exchange.body(b"", status=404)
                return
            exchange.begin_stream()
            exchange.event(retry=0)
            server.outbox.get()
            exchange.end_stream()

        server.on["GET"] = listen
        with client:
            assert server.wait_for("GET")
            server.on["tools/call"] = keep
            gate.closed.set()
            call = client.submit_tool("echo", {})
            # Its thread is about to send it, and is held up.
            assert gate.reached.wait(PATIENCE)
            forget()
            # The next channel has sent it now.
            assert server.wait_for("tools/call")
            gate.go.set()
            gate.thread.join(PATIENCE)
            forget()
            with pytest.raises(ServerCrashed) as lost:
                call.result(PATIENCE)
        assert lost.value.delivery == "unknown"
        assert len(server.of("tools/call")) == 1

    def test_an_authorization_cannot_have_it_sent_again_after_a_success(self, serve: Serve, logins: DaemonPool) -> None:
        class Eager(httpx2.Auth):
            def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
                yield request
                yield request

        server = serve()
        item = a_call()
        post = a_post(item)
        post._session.url, post._session.send = Url.parse(server.url), AuthorizedRequests(Eager(), logins)
        connection = HttpConnection(HttpSettings())
        run(post.exchange(connection))
        connection.close()
        assert len(server.of("tools/call")) == 1
        item.undo_write.assert_not_called()
