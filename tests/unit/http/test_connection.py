"""One connection: exchanges over real sockets, used again, torn down under a thread that waits for it."""

from __future__ import annotations

import gc
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaia.http.errors import ConnectFailed, HttpClientError, Interrupted, ProtocolBroken, TimedOut, TooLong
from gaia.http.request import HttpSettings
from gaia.http.streams import Stream
from gaia.http.url import Url
from gaia.http.waits import Deadline, run
from tests.unit.http.conftest import PATIENCE, BlockingConnection, Connected, RawServer, Scripted, answering, ok
from tests.waiting import wait_until

HEADERS = {"Content-Type": "application/json"}


def post(connection: BlockingConnection, url: Url, body: bytes = b"{}", deadline: float | None = None) -> bytes:
    with connection.request("POST", url, HEADERS, body, deadline=deadline) as response:
        return response.read()


def soon() -> float:
    return time.monotonic() + PATIENCE


class TestExchange:
    def test_the_request_is_as_the_settings_and_the_caller_say(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok()))
        connection = connected(headers={"User-Agent": "gaia", "content-type": "text/plain"})
        assert post(connection, server.url) == b"hello"
        assert server.received.get(timeout=PATIENCE) == (
            b"POST /mcp HTTP/1.1\r\nHost: %b\r\nUser-Agent: gaia\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2\r\n\r\n{}" % server.url.authority.encode()
        )

    def test_the_next_request_has_its_own_head(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok(), ok(), ok(), ok()))
        connection = connected()
        headers = {"X": "1"}
        lines = []
        for method, url in (
            ("POST", server.url),
            ("POST", server.url.join("/other?a=1")),
            ("GET", server.url),
            ("DELETE", server.url),
        ):
            with connection.request(method, url, headers) as response:
                assert response.read() == b"hello"
            head = server.received.get(timeout=PATIENCE)
            lines.append((head.split(b" HTTP")[0], head.split(b"X: ")[1][:1], b"Content-Length" in head))
            headers["X"] = str(int(headers["X"]) + 1)
        assert lines == [
            (b"POST /mcp", b"1", True),
            (b"POST /other?a=1", b"2", True),
            (b"GET /mcp", b"3", False),
            (b"DELETE /mcp", b"4", False),
        ]

    def test_a_body_of_any_length_arrives_whole(self, scripted: Scripted, connected: Connected) -> None:
        body = os.urandom(3_000_000)
        server = scripted(answering(ok(body)))
        assert post(connected(), server.url, body, soon()) == body
        assert server.received.get(timeout=PATIENCE).endswith(body)

    def test_statuses_before_the_answer_are_passed_over(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\n" + ok()))
        seen: list[int] = []
        with connected().request("POST", server.url, HEADERS, b"{}", on_status=seen.append) as response:
            assert (response.status, response.header(b"a"), response.read()) == (200, None, b"hello")
        assert seen == [200]

    def test_a_server_that_refuses_before_it_has_read_all_is_heard(
        self, scripted: Scripted, connected: Connected
    ) -> None:
        def refuse(server: RawServer, peer: socket.socket) -> None:
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
            peer.shutdown(socket.SHUT_WR)
            # The rest is read and forgotten: unread data would make the system drop the answer.
            while peer.recv(65536):
                pass

        with connected().request("POST", scripted(refuse).url, HEADERS, bytes(30_000_000), deadline=soon()) as response:
            assert (response.status, response.read()) == (413, b"no")

    def test_the_answer_to_head_has_no_body(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), answering(ok()))
        connection = connected()
        with connection.request("HEAD", server.url, {}) as response:
            assert (response.header(b"content-length"), response.read()) == ("5", b"")
        assert post(connection, server.url) == b"hello"

    def test_a_stream_comes_as_it_is_written(self, scripted: Scripted, connected: Connected) -> None:
        goes_on: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def stream(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            while data := goes_on.get(timeout=PATIENCE):
                peer.sendall(b"%x\r\n%b\r\n" % (len(data), data))
            peer.sendall(b"0\r\n\r\n")

        connection = connected()
        with connection.request("GET", scripted(stream).url, {}, deadline=soon()) as response:
            chunks = response.chunks()
            for event in (b"data: 1\n\n", b"data: 2\n\n"):
                goes_on.put(event)
                assert next(chunks) == event
            goes_on.put(b"")
            assert list(chunks) == []

    def test_cookies_are_shared_by_the_connections_with_the_same_settings(
        self, scripted: Scripted, connected: Connected
    ) -> None:
        first = connected()
        server = scripted(answering(ok(headers=b"Set-Cookie: a=1\r\nSet-Cookie: b=2; Path=/\r\n")), answering(ok()))
        post(first, server.url)
        second = BlockingConnection(first._settings)
        post(second, server.url)
        second.close()
        assert b"Cookie" not in server.received.get(timeout=PATIENCE)
        assert b"\r\nCookie: a=1; b=2\r\n" in server.received.get(timeout=PATIENCE)

    @pytest.mark.parametrize("headers", [{"X": "a\r\nEvil: 1"}, {"X\r\nEvil": "1"}, {"Transfer-Encoding": "chunked"}])
    def test_headers_that_cannot_be_sent_are_an_error_before_anything_is_written(
        self, connected: Connected, headers: dict[str, str]
    ) -> None:
        with pytest.raises(ValueError, match="headers"):
            connected().request("GET", Url.parse("http://127.0.0.1:9/"), headers)


class TestAgain:
    def test_a_connection_whose_response_was_read_is_used_again(self, scripted: Scripted, connected: Connected) -> None:
        server, connection = scripted(answering(ok(), ok(), ok())), connected()
        assert not connection.is_connected
        assert not connection.is_kept
        for _ in range(3):
            assert post(connection, server.url) == b"hello"
            assert connection.is_kept
            assert not connection.is_stale
        assert server.connections == 1

    @pytest.mark.parametrize(
        "answer",
        [
            ok(headers=b"Connection: close\r\n"),
            b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            ok() + b"surplus",
        ],
    )
    def test_one_that_the_server_ends_or_misuses_is_not(
        self, answer: bytes, scripted: Scripted, connected: Connected
    ) -> None:
        server, connection = scripted(answering(answer, ok(b"never")), answering(ok())), connected()
        assert post(connection, server.url) == b"hello"
        assert not connection.is_connected
        assert post(connection, server.url) == b"hello"
        assert server.connections == 2

    @pytest.mark.parametrize("last", [b"", b"unasked"])
    def test_what_happens_to_it_while_it_is_idle_is_noticed_before_the_next_request(
        self, last: bytes, scripted: Scripted, connected: Connected
    ) -> None:
        ended = threading.Event()

        def leave(server: RawServer, peer: socket.socket) -> None:
            answering(ok())(server, peer)
            peer.sendall(last)
            peer.shutdown(socket.SHUT_WR)
            ended.set()

        server, connection = scripted(leave, answering(ok(b"again"))), connected()
        assert post(connection, server.url) == b"hello"
        assert ended.wait(PATIENCE)
        assert wait_until(lambda: not connection.is_connected)
        assert post(connection, server.url) == b"again"

    def test_one_that_was_idle_for_too_long_is_not(self, scripted: Scripted, connected: Connected) -> None:
        server, connection = scripted(answering(ok(), ok())), connected(idle_seconds=0.0)
        post(connection, server.url)
        assert connection.is_stale
        assert not connection.is_connected
        post(connection, server.url)
        assert server.connections == 2

    def test_another_server_gets_another_one(self, scripted: Scripted, connected: Connected) -> None:
        one, other, connection = scripted(answering(ok(b"1"))), scripted(answering(ok(b"2"))), connected()
        assert post(connection, one.url) == b"1"
        assert post(connection, other.url) == b"2"

    def test_a_response_that_was_not_read_to_its_end_ends_it(self, scripted: Scripted, connected: Connected) -> None:
        server, connection = scripted(answering(ok(bytes(1_000_000))), answering(ok())), connected()
        with connection.request("GET", server.url, {}) as response:
            next(response.chunks())
        assert post(connection, server.url) == b"hello"
        with pytest.raises(HttpClientError, match="closed before it was read"):
            response.read()

    def test_a_response_that_was_never_left_ends_it(self, scripted: Scripted, connected: Connected) -> None:
        server, connection = scripted(answering(ok()), answering(ok(b"second"))), connected()
        connection.request("GET", server.url, {})
        assert post(connection, server.url) == b"second"


class TestNeverTwice:
    """What may have reached a server is not written to it, or to another one, again."""

    def test_a_used_connection_that_breaks_before_the_answer_is_an_error(
        self, scripted: Scripted, connected: Connected
    ) -> None:
        def break_off(server: RawServer, peer: socket.socket) -> None:
            answering(ok())(server, peer)
            server.request_of(peer)

        server, connection = scripted(break_off, answering(ok())), connected()
        post(connection, server.url)
        with pytest.raises(ProtocolBroken, match="without a response"):
            post(connection, server.url)
        assert server.connections == 1

    def test_so_is_one_that_is_reset(self, scripted: Scripted, connected: Connected) -> None:
        def reset(server: RawServer, peer: socket.socket) -> None:
            answering(ok())(server, peer)
            peer.recv(1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

        server, connection = scripted(reset, answering(ok())), connected()
        post(connection, server.url)
        with pytest.raises(HttpClientError, match="the connection broke: "):
            post(connection, server.url)
        assert server.connections == 1

    def test_nothing_is_written_before_the_caller_agrees(self, scripted: Scripted, connected: Connected) -> None:
        def refuse() -> None:
            raise PermissionError("no")

        server, connection = scripted(answering(ok())), connected()
        with pytest.raises(PermissionError):
            connection.request("POST", server.url, {}, b"{}", on_sending=refuse)
        assert connection.is_connected, "it can still be used"
        assert post(connection, server.url) == b"hello"
        assert server.received.get(timeout=PATIENCE).startswith(b"POST")
        assert server.connections == 1

    def test_the_caller_is_not_asked_without_a_connection(self, connected: Connected) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = Url.parse(f"http://127.0.0.1:{closed.getsockname()[1]}/secret")
        with pytest.raises(
            ConnectFailed, match=rf"cannot connect to 127.0.0.1:{url.port}: Connection refused"
        ) as caught:
            connected().request("GET", url, {}, on_sending=lambda: pytest.fail("it is not sent"))
        assert "secret" not in str(caught.value)


class TestLimits:
    def test_a_longer_body_is_an_error(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok(bytes(1001))))
        with pytest.raises(TooLong, match="longer than 1000 bytes"):
            post(connected(max_bytes=1000), server.url)

    def test_a_head_without_end_is_one(self, scripted: Scripted, connected: Connected) -> None:
        def go_on(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                peer.sendall(b"X: " + b"a" * 1000)

        with pytest.raises((TooLong, ProtocolBroken)):
            post(connected(), scripted(go_on).url, deadline=soon())

    def test_an_encoding_that_was_not_asked_for_is_one(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok(headers=b"Content-Encoding: br\r\n")), answering(ok()))
        connection = connected()
        with pytest.raises(ProtocolBroken, match="'br'"):
            post(connection, server.url)
        assert post(connection, server.url) == b"hello"


class TestDeadline:
    def test_a_server_that_says_nothing_has_until_then(self, scripted: Scripted, connected: Connected) -> None:
        done = threading.Event()

        def silent(server: RawServer, peer: socket.socket) -> None:
            peer.settimeout(PATIENCE)
            while peer.recv(65536):
                pass

        for script, body in ((silent, b"{}"), (lambda _, __: done.wait(PATIENCE) and None, bytes(30_000_000))):
            with pytest.raises(TimedOut):
                post(connected(), scripted(script).url, body, deadline=time.monotonic() + 0.2)
        done.set()

    def test_it_is_that_of_the_whole_answer(self, scripted: Scripted, connected: Connected) -> None:
        stop = threading.Event()

        def trickle(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not stop.wait(0.01):
                peer.sendall(b"x")

        with pytest.raises(TimedOut):
            post(connected(), scripted(trickle).url, deadline=time.monotonic() + 0.2)
        stop.set()

    def test_one_that_has_passed_sends_nothing(self, scripted: Scripted, connected: Connected) -> None:
        server = scripted(answering(ok()), answering(ok()))
        connection = connected()
        post(connection, server.url)
        with pytest.raises(TimedOut):
            post(connection, server.url, deadline=time.monotonic() - 1)

    def test_it_can_be_moved_during_the_exchange(self, scripted: Scripted, connected: Connected) -> None:
        waits = threading.Event()

        def late(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            assert waits.wait(PATIENCE)
            peer.sendall(ok())

        times = 0

        def deadline() -> float:
            nonlocal times
            times += 1
            if times > 10:
                waits.set()
            # Always a little later: as if there were progress.
            return time.monotonic() + 0.06

        with connected().request("POST", scripted(late).url, {}, b"{}", deadline=deadline) as response:
            assert response.read() == b"hello"


class TestInterrupt:
    @pytest.mark.parametrize("begun", [False, True])
    def test_a_thread_that_waits_for_the_response_or_the_rest_of_it_is_woken(
        self, begun: bool, scripted: Scripted, connected: Connected
    ) -> None:
        waiting = threading.Event()

        def hang(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            if begun:
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            waiting.set()
            peer.settimeout(PATIENCE)
            assert peer.recv(1) == b""

        server, connection = scripted(hang, answering(ok())), connected()
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(post, connection, server.url)
            assert waiting.wait(PATIENCE)
            connection.interrupt()
            assert isinstance(request.exception(PATIENCE), Interrupted)
        assert post(connection, server.url) == b"hello", "the next request has a new connection"

    def test_a_thread_that_cannot_write_is_woken(self, scripted: Scripted, connected: Connected) -> None:
        done = threading.Event()
        server, connection = scripted(lambda server, peer: done.wait(PATIENCE) and None), connected()
        sending = threading.Event()
        with ThreadPoolExecutor(1) as pool:

            def send() -> None:
                connection.request("POST", server.url, {}, bytes(30_000_000), on_sending=sending.set)

            request = pool.submit(send)
            assert sending.wait(PATIENCE)
            connection.interrupt()
            assert isinstance(request.exception(PATIENCE), Interrupted)
        done.set()

    @pytest.mark.parametrize("raised", [Interrupted, KeyboardInterrupt])
    def test_a_handler_of_a_signal_may_do_it_or_raise_and_leaves_nothing_behind(
        self, raised: type[BaseException], scripted: Scripted, connected: Connected
    ) -> None:
        def hang(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            peer.settimeout(PATIENCE)
            assert peer.recv(1) == b""

        def handle(*_: object) -> None:
            if raised is KeyboardInterrupt:
                raise KeyboardInterrupt
            connection.interrupt()

        server, connection = scripted(hang, answering(ok())), connected()
        before = signal.signal(signal.SIGUSR1, handle)
        try:
            with pytest.raises(raised):
                post(connection, server.url, deadline=soon())
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert post(connection, server.url) == b"hello"

    def test_at_any_moment_a_request_succeeds_or_is_interrupted(self, scripted: Scripted, connected: Connected) -> None:
        def serve(server: RawServer, peer: socket.socket) -> None:
            while True:
                server.request_of(peer)
                peer.sendall(ok())

        server, connection = scripted(serve), connected()
        stop = threading.Event()

        def disturb() -> None:
            while not stop.wait(0.0003):
                connection.interrupt()

        thread = threading.Thread(target=disturb)
        thread.start()
        outcomes = set()
        try:
            for _ in range(100):
                try:
                    outcomes.add(post(connection, server.url, deadline=soon()))
                except Interrupted:
                    outcomes.add(b"")
        finally:
            stop.set()
            thread.join()
        assert outcomes <= {b"", b"hello"}
        assert post(connection, server.url) == b"hello"


def test_there_is_no_socket_before_the_first_request_and_after_the_last(connected: Connected) -> None:
    connection = connected()
    connection.interrupt()
    connection.close()
    connection.close()
    assert not connection.is_connected


def test_one_that_is_dropped_closes_its_socket(scripted: Scripted) -> None:
    server = scripted(answering(ok(), ok()))
    connection = BlockingConnection(HttpSettings())
    post(connection, server.url)
    before = connection._socket
    assert before is not None
    del connection
    gc.collect()
    assert before.fileno() == -1


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_leaves_the_connection_to_its_parent(scripted: Scripted, connected: Connected) -> None:
    server, connection = scripted(answering(ok(), ok())), connected()
    post(connection, server.url)
    child = os.fork()
    if child == 0:
        connection.close()
        os._exit(1 if connection.is_connected else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert post(connection, server.url) == b"hello"
    assert server.connections == 1


@pytest.mark.parametrize("kind", [ConnectFailed, ProtocolBroken, TimedOut, TooLong])
def test_all_that_a_server_or_a_network_does_is_one_kind_and_giving_up_is_not(kind: type[Exception]) -> None:
    assert issubclass(kind, HttpClientError)
    assert issubclass(kind, OSError)
    assert str(kind("what went wrong")) == "what went wrong"
    assert not issubclass(Interrupted, OSError)


Pair = tuple[Stream, socket.socket]


@pytest.fixture
def pair(no_leaks: None) -> Iterator[Pair]:
    """A stream, and the other end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield Stream(ours), theirs


@pytest.mark.parametrize(
    "deadline",
    [None, 1e9, lambda: None, lambda: time.monotonic() + 5],
    ids=["none", "far", "callable-none", "callable"],
)
def test_what_comes_before_the_deadline_is_given(pair: Pair, deadline: Deadline) -> None:
    stream, other = pair
    other.sendall(b"hello")
    assert run(stream.receive(deadline)) == b"hello"
    run(stream.send(b"hi", deadline))
    assert other.recv(10) == b"hi"
    other.sendall(b"you")
    assert stream.receive_here(deadline) == b"you"
    other.close()
    assert run(stream.receive(deadline)) == b""
    assert stream.receive_here(deadline) == b""


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.01, 0.2])
def test_a_wait_ends_when_it_has_passed(pair: Pair, seconds: float) -> None:
    stream, _ = pair
    deadline = time.monotonic() + seconds
    with pytest.raises(TimedOut):
        run(stream.receive(deadline))
    assert time.monotonic() >= deadline
    with pytest.raises(TimedOut):
        stream.receive_here(time.monotonic() + seconds)
    with pytest.raises(TimedOut):
        run(stream.send(bytes(50_000_000), time.monotonic() + seconds))


def test_one_without_a_limit_follows_one_with_a_limit(pair: Pair) -> None:
    stream, other = pair
    other.sendall(b"1")
    assert run(stream.receive(time.monotonic() + 5)) == b"1"
    other.sendall(b"2")
    assert run(stream.receive(None)) == b"2"


def test_an_error_of_the_system_is_no_deadline_that_has_passed(pair: Pair) -> None:
    """TCP gives up a peer that answers nothing for long: `ETIMEDOUT`, which Python calls `TimeoutError` too."""
    stream, other = pair

    class Dead(socket.socket):
        def recv(self, *_: Any) -> bytes:
            raise TimeoutError(110, "Connection timed out")

        send = recv  # type: ignore[assignment]

    other.sendall(b"x")
    ours = stream._socket
    stream._socket = Dead(fileno=os.dup(ours.fileno()))
    with pytest.raises(TimeoutError, match="Connection timed out"):
        run(stream.receive(time.monotonic() + 5))
    with pytest.raises(TimeoutError, match="Connection timed out"):
        run(stream.send(b"x", time.monotonic() + 5))
    stream._socket.close()


def test_it_is_readable_when_there_is_data_or_the_end(pair: Pair) -> None:
    stream, other = pair
    assert not stream.is_readable()
    other.sendall(b"x")
    assert stream.is_readable()
    assert run(stream.receive(None)) == b"x"
    assert not stream.is_readable()
    other.close()
    assert stream.is_readable()
