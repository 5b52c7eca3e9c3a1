"""Exchanges on the callers' own threads: who makes them, what ends them, and what they leave behind."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import math
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gaia.http.connection import HttpConnection
from gaia.mcp import MCPClient
from gaia.mcp.errors import CallCancelled, NotConnected
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.transports.http.channel import HttpChannel
from gaia.mcp.transports.http.post import Post
from gaia.mcp.transports.http.transport import HttpTransport
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.handover import on_engine_thread
from tests.interruption import Interruption, places, raise_within
from tests.servers.http_server import LEGACY, PATIENCE, Exchange, ScriptedServer
from tests.unit.mcp.transports.http.conftest import ERAS, TEXT, Connect, Hang, Serve, text_of, threads
from tests.waiting import wait_until

Json = dict[str, Any]


def channel_of(client: MCPClient) -> HttpChannel:
    transport = client.transport
    assert isinstance(transport, HttpTransport)
    assert isinstance(transport._channel, HttpChannel)
    return transport._channel


def holds_nothing(client: MCPClient) -> bool:
    """Whether no call and no connection counts as under way."""
    channel = channel_of(client)
    return not channel.calls._users and not any(
        post.id is not None and post.method == "tools/call" for post in channel._posts
    )


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that begin to send calls of tools, by their ids."""
    found: list[int] = []
    begin = Post._begin

    def noted(post: Post) -> None:
        if post.method == "tools/call":
            found.append(threading.get_ident())
        begin(post)

    monkeypatch.setattr(Post, "_begin", noted)
    return found


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that make connections, by their ids."""
    found: list[int] = []
    connect_to = HttpConnection._connect

    async def noted(connection: HttpConnection, *arguments: Any) -> None:
        found.append(threading.get_ident())
        await connect_to(connection, *arguments)

    monkeypatch.setattr(HttpConnection, "_connect", noted)
    return found


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    """Another thread of the application."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


class TestWhoMakesIt:
    @ERAS
    def test_the_caller_that_waits(self, era: str, serve: Serve, connect: Connect, senders: list[int]) -> None:
        client = connect(serve(era=era))

        def is_made_here() -> bool:
            """True as soon as there is an idle connection: the call before may just be giving it back."""
            assert text_of(client.call_tool("echo", {"text": "hi"})) == "hi"
            return senders[-1] == threading.get_ident()

        assert wait_until(is_made_here)

    def test_the_io_thread_if_nothing_waits(self, client: MCPClient, senders: list[int]) -> None:
        client.submit_tool("echo", {}).result(PATIENCE)
        client.call_tool("echo", {}, on_progress=lambda *_: None)
        assert len(senders) == 2
        assert threading.get_ident() not in senders

    def test_the_io_thread_if_there_is_no_connection(
        self, serve: Serve, connect: Connect, connecting: list[int]
    ) -> None:
        server = serve()

        def close(exchange: Exchange) -> None:
            exchange._handler.close_connection = True
            exchange.json(exchange.answer(TEXT), headers={"Connection": "close"})

        client = connect(server)
        server.on["tools/call"] = close
        for _ in range(3):
            assert client.call_tool("echo", {}) == TEXT
        assert threading.get_ident() not in connecting

    def test_the_io_thread_if_a_redirect_ends_the_connection(
        self, serve: Serve, connect: Connect, connecting: list[int]
    ) -> None:
        server = serve()

        def moved(exchange: Exchange) -> None:
            if exchange.seen.path == "/mcp":
                exchange._handler.close_connection = True
                exchange.body(b"", status=307, headers={"Location": "/mcp/", "Connection": "close"})
            else:
                exchange.json(exchange.answer(TEXT))

        client = connect(server)
        server.on["tools/call"] = moved
        assert wait_until(lambda: len(channel_of(client)._idle._idle) > 0)
        connecting.clear()
        assert client.call_tool("echo", {}) == TEXT
        assert connecting
        assert threading.get_ident() not in connecting

    def test_the_io_thread_if_the_connection_has_just_ended(
        self, client: MCPClient, connecting: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was still there when the caller borrowed it."""
        channel = channel_of(client)
        assert wait_until(lambda: len(channel._idle._idle) > 0)
        take_open = channel._idle.take_open

        def ends() -> HttpConnection | None:
            connection = take_open()
            if connection is not None:
                connection._looked_at, connection._idle_since = 0.0, -math.inf
            return connection

        monkeypatch.setattr(channel._idle, "take_open", ends)
        connecting.clear()
        assert not client.call_tool("echo", {}).is_error
        assert connecting
        assert threading.get_ident() not in connecting

    def test_beyond_the_limit_of_connections_a_call_waits_for_its_turn(
        self, serve: Serve, caller: ThreadPoolExecutor
    ) -> None:
        server = serve()
        go = threading.Event()

        def slow(exchange: Exchange) -> None:
            go.wait(PATIENCE)
            server.respond(exchange, exchange.answer(TEXT))

        with MCPClient("web", HttpTransport(server.url, max_connections=1)) as client:
            server.on["tools/call"] = slow
            first = caller.submit(client.call_tool, "echo")
            server.wait_for("tools/call")
            assert client.call_tool("echo", {}, timeout=0.1)["delivery"] == "not_sent"
            assert len(server.of("tools/call")) == 1
            go.set()
            assert first.result(PATIENCE) == TEXT
            assert client.call_tool("echo", {}, timeout=5) == TEXT
            assert wait_until(lambda: holds_nothing(client))


class TestWhatEndsIt:
    """The caller's thread waits in the socket, and the call ends otherwise."""

    @ERAS
    @pytest.mark.parametrize("streaming", [False, True])
    def test_another_thread_cancels(
        self, era: str, streaming: bool, serve: Serve, connect: Connect, caller: ThreadPoolExecutor
    ) -> None:
        server = serve(era=era)
        client, scope, hang = connect(server), CancelScope(), Hang(server, Exchange.begin_stream if streaming else bool)

        def call() -> Json:
            with scope.entered():
                return client.call_tool("echo", {}, timeout=60)

        future = caller.submit(call)
        hang.reached.get(timeout=PATIENCE)
        scope.cancel()
        result = future.result(PATIENCE)
        assert (result["error_type"], result["delivery"]) == ("cancelled", "unknown")
        assert hang.left.get(timeout=PATIENCE)
        if era == LEGACY:
            server.wait_for("notifications/cancelled")
        del server.on["tools/call"]
        assert not client.call_tool("echo", {}).is_error
        assert wait_until(lambda: holds_nothing(client))

    def test_progress_gives_it_more_time(self, server: ScriptedServer, client: MCPClient) -> None:

        def work(exchange: Exchange) -> None:
            token = exchange.seen.body["params"]["_meta"]["progressToken"]
            exchange.begin_stream()
            for number in range(1, 7):
                server.stopping.wait(0.3)
                progress = {"progressToken": token, "progress": number}
                exchange.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            exchange.event(exchange.answer(TEXT))
            exchange.end_stream()

        server.on["tools/call"] = work
        assert client.call_tool("echo", {}, timeout=1.5, reset_timeout_on_progress=True) == TEXT

    def test_the_client_is_disconnected(
        self, server: ScriptedServer, client: MCPClient, caller: ThreadPoolExecutor
    ) -> None:
        hang = Hang(server)
        future = caller.submit(client.call_tool, "echo", {}, timeout=60)
        hang.reached.get(timeout=PATIENCE)
        client.disconnect()
        assert threads() == []
        assert "closed" in future.result(PATIENCE)["error"]
        assert hang.left.get(timeout=PATIENCE)

    def test_the_server_forgets_the_session(
        self, serve: Serve, connect: Connect, caller: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.channel._DRAIN_SECONDS", 0.1)
        server = serve()
        client, hang = connect(server), Hang(server)
        future = caller.submit(client.call_tool, "echo", {}, timeout=60)
        hang.reached.get(timeout=PATIENCE)
        server.on["tools/call"] = server._answer
        server.open_sessions.clear()
        server.on["GET"] = lambda exchange: exchange.body(b"", status=404)
        server.outbox.put(None)
        result = future.result(PATIENCE)
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")

    def test_the_server_goes_away(self, connect: Connect, caller: ThreadPoolExecutor) -> None:
        with ScriptedServer().serving() as server:
            client, hang = connect(server, restart={"restart": "never"}), Hang(server)
            future = caller.submit(client.call_tool, "echo", {}, timeout=60)
            hang.reached.get(timeout=PATIENCE)
        result = future.result(PATIENCE)
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
        client.disconnect()

    def test_a_connection_that_the_server_closed_meanwhile_is_not_used(
        self, server: ScriptedServer, client: MCPClient, senders: list[int]
    ) -> None:

        def answer_and_close(exchange: Exchange) -> None:
            exchange.json(exchange.answer(TEXT))
            exchange.drop()

        server.on["tools/call"] = answer_and_close
        for number in range(20):
            result = client.call_tool("echo", {})
            # The end may come while the next call is being sent; it is then not known what became of that.
            assert result == TEXT or (number and result["delivery"] == "unknown"), result
        ids = [seen.body["id"] for seen in server.of("tools/call")]
        assert len(ids) == len(set(ids)) <= len(senders) == 20


class TestAnotherChannel:
    def test_a_call_that_goes_to_the_next_channel_is_not_sent_on_the_old_one(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The channel is closed after it has left the exchange with the caller, and the call is readmitted."""
        monkeypatch.setattr("gaia.mcp.transports.http.channel._DRAIN_SECONDS", 0.1)
        server = serve()
        client = connect(server)
        channel = channel_of(client)
        assert wait_until(lambda: len(channel._idle._idle) > 0)
        leave, close, borrow, give_back = (
            channel._leave,
            channel.calls.close,
            channel.calls.borrow,
            channel.calls.leave,
        )
        borrowed, may_answer = threading.Event(), threading.Event()
        reached: queue.SimpleQueue[int] = queue.SimpleQueue()

        def leave_and_lose(*arguments: Any) -> bool:
            left = leave(*arguments)
            channel.session_forgotten()
            assert wait_until(lambda: channel.is_closed)
            return left

        def close_later() -> None:
            borrowed.wait(PATIENCE)
            close()

        def borrow_and_wait(borrower: object) -> HttpConnection | None:
            connection = borrow(borrower)
            borrowed.set()
            if connection is not None:
                reached.get(timeout=PATIENCE)
            return connection

        def give_back_and_go(*arguments: Any) -> bool:
            may_answer.set()
            return give_back(*arguments)

        def answer(exchange: Exchange) -> None:
            reached.put(exchange.id)
            if len(server.of("tools/call")) - before > 1:
                may_answer.set()
            may_answer.wait(PATIENCE)
            server.respond(exchange, exchange.answer(TEXT))

        for name, replacement in {"borrow": borrow_and_wait, "leave": give_back_and_go}.items():
            monkeypatch.setattr(channel.calls, name, replacement)
        monkeypatch.setattr(channel.calls, "close", close_later)
        monkeypatch.setattr(channel, "_leave", leave_and_lose)
        before = len(server.of("tools/call"))
        server.on["tools/call"] = answer
        assert client.call_tool("echo", {}, timeout=PATIENCE) == TEXT
        assert len(server.of("tools/call")) - before == 1


class TestTheRestOfAStream:
    def test_the_answer_is_there_before_the_end(self, server: ScriptedServer, client: MCPClient) -> None:
        ports = []
        go, ended = threading.Event(), threading.Event()

        def stream(exchange: Exchange) -> None:
            ports.append(exchange._handler.client_address[1])
            exchange.begin_stream()
            exchange.event(exchange.answer(TEXT))
            go.wait(PATIENCE)
            exchange.end_stream()
            ended.set()

        server.on["tools/call"] = stream
        assert client.call_tool("echo", {}) == TEXT
        assert not ended.is_set()
        go.set()
        assert ended.wait(PATIENCE)
        assert wait_until(lambda: holds_nothing(client))
        assert client.call_tool("echo", {}) == TEXT
        assert ports[0] == ports[1], "its end was read, so the connection was used again"

    def test_what_comes_after_the_answer_arrives_too(self, server: ScriptedServer, client: MCPClient) -> None:
        go = threading.Event()

        def stream(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event(exchange.answer(TEXT))
            go.wait(PATIENCE)
            exchange.event({"jsonrpc": "2.0", "id": "late", "method": "ping"})
            exchange.end_stream()

        server.on["tools/call"] = stream
        assert client.call_tool("echo", {}) == TEXT
        go.set()
        assert wait_until(lambda: any(seen.body.get("id") == "late" for seen in list(server.seen)))

    def test_a_stream_that_breaks_is_continued_where_it_broke_on_another_thread(
        self, server: ScriptedServer, client: MCPClient, senders: list[int]
    ) -> None:
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
        assert len(senders) == 1
        assert wait_until(lambda: holds_nothing(client))


class TestTheCallersLocks:
    def test_a_log_handler_may_wait_for_one(self, server: ScriptedServer, client: MCPClient) -> None:
        """The caller holds it while it calls."""
        lock = threading.Lock()
        told: queue.SimpleQueue[str] = queue.SimpleQueue()

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "noise" in record.getMessage():
                    with lock:
                        told.put(threading.current_thread().name)

        def noise(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("no message")
            exchange.event(exchange.answer(TEXT))
            exchange.end_stream()

        server.on["tools/call"] = noise
        handler, root = Handler(), logging.getLogger("gaia")
        root.addHandler(handler)
        try:
            with lock:
                assert client.call_tool("echo", {}, timeout=PATIENCE) == TEXT
            assert told.get(timeout=PATIENCE) == "gaia-log"
        finally:
            root.removeHandler(handler)

    def test_what_the_application_logs_afterwards_is_its_own(self, client: MCPClient) -> None:

        client.call_tool("echo", {})
        assert not on_engine_thread()


class Stop(TimeoutError):
    """Raised by a signal handler: an error that sockets raise as well."""


@contextlib.contextmanager
def on_signal(handler: Callable[[], object], wait: Callable[[], object] = bool) -> Iterator[Callable[[], None]]:
    """Send the main thread a signal after `wait`, for which `handler` runs; gives what sends one more."""
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    main = threading.main_thread().ident
    assert main is not None

    def kill() -> None:
        signal.pthread_kill(main, signal.SIGUSR1)

    def interrupt() -> None:
        wait()
        kill()

    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        yield kill
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, before)


def stop() -> None:
    raise Stop


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to no single thread here")
class TestSignals:
    @pytest.fixture(autouse=True)
    def in_the_main_thread(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            pytest.skip("handlers run in the main thread only")

    def test_an_exception_of_a_handler_ends_it(self, server: ScriptedServer, client: MCPClient) -> None:
        hang = Hang(server)
        with on_signal(stop, lambda: hang.reached.get(timeout=PATIENCE)), pytest.raises(Stop):
            client.call_tool("echo", {}, timeout=60)
        server.wait_for("notifications/cancelled")
        assert hang.left.get(timeout=PATIENCE)
        del server.on["tools/call"]
        assert not client.call_tool("echo", {}).is_error
        assert wait_until(lambda: holds_nothing(client))

    def test_a_handler_may_disconnect(self, server: ScriptedServer, client: MCPClient) -> None:
        hang = Hang(server)
        with on_signal(client.disconnect, lambda: hang.reached.get(timeout=PATIENCE)):
            assert "closed" in client.call_tool("echo", {}, timeout=60)["error"]
        assert client.state is ServerState.CLOSED
        assert hang.left.get(timeout=PATIENCE)
        assert threads() == []

    def test_a_handler_may_cancel_it(self, server: ScriptedServer, client: MCPClient) -> None:
        hang, scope = Hang(server), CancelScope()
        with on_signal(scope.cancel, lambda: hang.reached.get(timeout=PATIENCE)), scope.entered():
            assert client.call_tool("echo", {}, timeout=60)["error_type"] == "cancelled"
        assert hang.left.get(timeout=PATIENCE)

    def test_a_handler_may_call(self, server: ScriptedServer, client: MCPClient) -> None:
        reached, go = threading.Event(), threading.Event()
        inner: list[Json] = []

        def answer(exchange: Exchange) -> None:
            if exchange.arguments == {"text": "outer"}:
                reached.set()
                go.wait(PATIENCE)
            server.respond(exchange, exchange.answer(TEXT))

        def call() -> None:
            inner.append(client.call_tool("echo", {"text": "inner"}, timeout=PATIENCE))
            inner.append(client.call_tool("echo", {"text": "inner"}, timeout=PATIENCE))
            go.set()

        server.on["tools/call"] = answer
        with on_signal(call, lambda: reached.wait(PATIENCE)):
            assert client.call_tool("echo", {"text": "outer"}, timeout=PATIENCE) == TEXT
        assert inner == [TEXT, TEXT]
        assert wait_until(lambda: holds_nothing(client))

    # A connection that is lost between two instructions is closed by the garbage collector.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_wherever_an_exception_comes_nothing_is_lost_or_sent_twice(self, serve: Serve, connect: Connect) -> None:
        """At moments by chance, most of them within a call."""
        server = serve()
        client = connect(server, healthInterval=60)
        chance, calls, caught = random.Random(1), 0, 0
        pause: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        armed = threading.Event()

        def handle() -> None:
            if armed.is_set():
                armed.clear()
                raise Stop

        with on_signal(handle) as kill:

            def interrupt() -> None:
                while (seconds := pause.get()) is not None:
                    time.sleep(seconds)
                    kill()

            helper = threading.Thread(target=interrupt)
            helper.start()
            try:
                for _ in range(150):
                    try:
                        armed.set()
                        pause.put(chance.random() * 0.002)
                        while armed.is_set():
                            calls += 1
                            client.call_tool("echo", {"text": "hi"}, timeout=PATIENCE)
                    except Stop:
                        caught += 1
            finally:
                armed.clear()
                pause.put(None)
                helper.join()
        # One that comes while the interpreter calls a destructor is not raised.
        assert caught > 100
        gc.collect()
        assert wait_until(lambda: holds_nothing(client))
        assert not client.call_tool("echo", {}).is_error
        ids = [seen.body["id"] for seen in server.of("tools/call")]
        assert len(ids) == len(set(ids)) <= calls + 1


class TestAtAnyLine:
    """What a handler does at each line that a call runs through, in its thread."""

    @pytest.mark.parametrize("what", ["cancel", "disconnect", "call"])
    def test_the_call_ends(self, what: str, monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
        monkeypatch.setattr("gaia.mcp.supervision.supervisor._STOP_SECONDS", 0.2)
        monkeypatch.setattr("gaia.mcp.transports.http.channel._JOIN_SECONDS", 1.0)
        outcomes: list[Json] = []
        with ScriptedServer(on={"GET": lambda exchange: exchange.body(b"", status=405)}).serving() as server:
            clients: list[MCPClient] = []

            def interrupt(place: int) -> Interruption:
                if not clients or what == "disconnect":
                    client = MCPClient.from_config("web", {"url": server.url})
                    assert client.connect()
                    clients.append(client)
                client, scope = clients[-1], CancelScope()

                def operation() -> None:
                    with scope.entered(), contextlib.suppress(CallCancelled, NotConnected):
                        outcomes.append(client.call_tool("echo", {"text": "hi"}, timeout=5))

                def handler() -> None:
                    if what == "cancel":
                        scope.cancel()
                    elif what == "call":
                        assert text_of(client.call_tool("echo", {"text": "inner"}, timeout=5)) == "inner"
                    else:
                        client.disconnect()

                return Interruption(operation, handler, place)

            try:
                for interruption in places(interrupt, step=29 if what == "disconnect" else 5, first=1):
                    assert interruption.error is None, interruption.where
                    outcome = outcomes.pop() if outcomes else {"error_type": "cancelled"}
                    expected = {"cancel": {None, "cancelled"}, "call": {None}}.get(
                        what, {None, "cancelled", "server_crashed"}
                    )
                    assert outcome.get("error_type") in expected, (interruption.where, outcome)
                    if what != "disconnect":
                        assert wait_until(lambda: holds_nothing(clients[-1])), interruption.where
                    else:
                        clients[-1].disconnect()
            finally:
                for client in clients:
                    client.disconnect()


# A connection that is lost between two instructions is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("idle", [True, False], ids=["on the caller's thread", "on the I/O thread"])
def test_after_an_exception_at_any_place_the_next_call_has_a_connection(idle: bool, serve: Serve) -> None:
    """The only one that there may be."""
    files = (
        "transports/http/connection_pool.py",
        "transports/http/channel.py",
        "gaia/http/io_thread.py",
        "gaia/http/waits.py",
        "gaia/runtime/handover.py",
    )
    with MCPClient("web", HttpTransport(serve().url, max_connections=1)) as client:
        connections = channel_of(client)._idle
        for place in itertools.count():
            assert text_of(client.call_tool("echo", {"text": "hi"}, timeout=PATIENCE)) == "hi"
            assert wait_until(lambda: bool(connections._idle))
            while not idle and (connection := connections.take_open()) is not None:
                connection.close()
            where = raise_within(lambda: client.call_tool("echo", {"text": "hi"}, timeout=PATIENCE), place, files)
            assert wait_until(lambda: holds_nothing(client)), where
            assert not on_engine_thread(), where
            if not where:
                break
        assert place > 10


def test_threads_that_call_and_cancel_at_once_leave_nothing_behind(serve: Serve, connect: Connect) -> None:
    server = serve(answer_in_streams=True)
    client = connect(server, healthInterval=60)

    def work(number: int) -> list[str | None]:
        chance, outcomes = random.Random(number), []
        for _ in range(25):
            scope = CancelScope()
            timer = threading.Timer(chance.random() * 0.01, scope.cancel)
            timer.start()
            with scope.entered():
                try:
                    outcomes.append(client.call_tool("echo", {"text": "hi"}, timeout=PATIENCE).get("error_type"))
                except CallCancelled:
                    outcomes.append("cancelled")
            timer.join()
        return outcomes

    with ThreadPoolExecutor(4) as pool:
        futures: list[Future[list[str | None]]] = [pool.submit(work, number) for number in range(4)]
        assert {outcome for future in futures for outcome in future.result(60)} <= {None, "cancelled"}
    assert wait_until(lambda: holds_nothing(client))
    assert not client.call_tool("echo", {}).is_error
