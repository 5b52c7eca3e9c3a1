"""Many exchanges on one thread: what they wait for, what interrupts them, and when the thread is there."""

from __future__ import annotations

import itertools
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gaia.http import io_thread
from gaia.http.connecting import _look_up
from gaia.http.connection import HttpConnection
from gaia.http.errors import ConnectFailed, Interrupted, TimedOut
from gaia.http.io_thread import IoThread, Signal, hold_io_thread, release_io_thread
from gaia.http.request import HttpSettings
from gaia.http.streams import Stream
from gaia.http.url import Url
from gaia.http.waits import IoThreadOnly, Job, Ready, Sleep, Turn, run, run_here
from gaia.runtime.locks import Latch
from tests.interruption import raise_within
from tests.unit.http.conftest import PATIENCE, RawServer, Scripted, answering, ok, on_io
from tests.waiting import wait_until


async def get(connection: HttpConnection, url: Url, **keywords: Any) -> bytes:
    with await connection.request("GET", url, {}, **keywords) as response:
        return await response.read()


class TestExchanges:
    def test_many_wait_on_one_thread(self, io: IoThread, scripted: Scripted) -> None:
        everyone, go = threading.Semaphore(0), threading.Event()

        def late(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            everyone.release()
            go.wait(PATIENCE)
            peer.sendall(ok())

        servers = [scripted(late) for _ in range(20)]
        connections = [HttpConnection(HttpSettings()) for _ in servers]
        outcomes = [on_io(io, get(one, server.url))[1] for one, server in zip(connections, servers, strict=True)]
        for _ in servers:
            assert everyone.acquire(timeout=PATIENCE)
        assert [thread.name for thread in threading.enumerate()].count("gaia-http") == 1
        go.set()
        assert [outcome.result(PATIENCE) for outcome in outcomes] == [b"hello"] * 20
        for connection in connections:
            connection.close()

    def test_one_that_never_waits_lets_the_others_have_their_turn(self, io: IoThread) -> None:
        stopped: list[bool] = []

        async def greedy() -> None:
            while not stopped:
                await Turn()

        async def modest() -> str:
            stopped.append(True)
            return "done"

        first = on_io(io, greedy())[1]
        assert on_io(io, modest())[1].result(PATIENCE) == "done"
        first.result(PATIENCE)

    def test_one_that_fails_is_logged_and_ends_no_other(self, io: IoThread, caplog: pytest.LogCaptureFixture) -> None:
        async def broken() -> None:
            raise LookupError("a mistake of ours")

        ended = threading.Event()
        task = io_thread.Task(io, broken(), lambda _: ended.set())
        io.post(lambda: io.begin(task))
        assert ended.wait(PATIENCE)
        assert wait_until(lambda: "a mistake of ours" in caplog.text)
        assert on_io(io, get_nothing())[1].result(PATIENCE) is None

    def test_a_callers_thread_begins_and_the_io_thread_goes_on(self, io: IoThread, scripted: Scripted) -> None:
        connection, threads = HttpConnection(HttpSettings()), []

        async def noted() -> bytes:
            threads.append(threading.current_thread().name)
            body = await get(connection, scripted(answering(ok())).url)
            threads.append(threading.current_thread().name)
            return body

        exchange = noted()
        wait = run_here(exchange)
        assert isinstance(wait, IoThreadOnly), "it has to connect"
        ended = threading.Event()
        task = io_thread.Task(io, exchange, lambda _: ended.set())
        io.post(lambda: io.begin(task, wait))
        assert ended.wait(PATIENCE)
        assert threads == [threading.current_thread().name, "gaia-http"]
        connection.close()


async def get_nothing() -> None:
    await Turn()


class TestWaits:
    """Each in two ways: in the thread that drives it, and on the I/O thread."""

    @pytest.fixture(params=["here", "there"])
    def drive(self, request: pytest.FixtureRequest, io: IoThread) -> Callable[[Any], Any]:
        return run if request.param == "here" else lambda exchange: on_io(io, exchange)[1].result(PATIENCE)

    def test_a_deadline_that_is_moved_counts(self, drive: Callable[[Any], Any]) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        looks: list[float] = []
        begun = time.monotonic()

        def deadline() -> float:
            looks.append(time.monotonic())
            return begun + (0.05 if len(looks) < 2 else 0.15)

        with ours, theirs, pytest.raises(TimedOut):
            drive(Stream(ours).receive(deadline))
        assert time.monotonic() >= begun + 0.15

    def test_a_pause_takes_its_time(self, drive: Callable[[Any], Any]) -> None:
        async def pause() -> float:
            until = time.monotonic() + 0.05
            await Sleep(until)
            return time.monotonic() - until

        assert drive(pause()) >= 0

    def test_a_job_gives_what_it_returns_or_raises(self, drive: Callable[[Any], Any]) -> None:
        async def work() -> tuple[object, str]:
            try:
                await Job(lambda: 1 // 0, None)
            except ZeroDivisionError as error:
                return await Job(lambda: 5, None), str(error)
            raise AssertionError

        assert drive(work())[0] == 5

    def test_names_are_looked_up(self, drive: Callable[[Any], Any]) -> None:
        assert drive(_look_up(Url.parse("http://localhost:1"), None))
        with pytest.raises(ConnectFailed, match="cannot look up"):
            drive(_look_up(Url.parse("http://no.such.host.invalid"), None))

    def test_a_signal_is_waited_for_until_its_time_is_over(self, drive: Callable[[Any], Any], io: IoThread) -> None:
        signal = Signal(io)

        async def wait() -> list[object]:
            late = await signal.within(0.01)
            signal.set()
            return [late, await signal.within(PATIENCE), await signal.within(PATIENCE)]

        assert drive(wait()) == [False, True, True]


class TestBlockingWork:
    def test_the_same_name_is_looked_up_once_at_a_time(self, io: IoThread, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: queue.SimpleQueue[object] = queue.SimpleQueue()
        go = threading.Event()

        def look_up(*place: object, **_: object) -> list[object]:
            asked.put(place)
            go.wait(PATIENCE)
            return [place]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

        async def wait() -> object:
            return await Job(lambda: socket.getaddrinfo("host", 1), key="host")

        outcomes = [on_io(io, wait())[1] for _ in range(5)]
        assert asked.get(timeout=PATIENCE) == ("host", 1)
        assert on_io(io, get_nothing())[1].result(PATIENCE) is None, "nothing else waits for it"
        go.set()
        assert [outcome.result(PATIENCE) for outcome in outcomes] == [[("host", 1)]] * 5
        assert asked.empty()

    def test_its_deadline_and_an_interruption_do_not_wait_for_it(self, io: IoThread) -> None:
        go, begun = threading.Event(), threading.Semaphore(0)

        def block() -> None:
            begun.release()
            go.wait(PATIENCE)

        async def late(deadline: float | None) -> None:
            await Job(block, None, deadline)

        _, timed = on_io(io, late(time.monotonic() + 0.05))
        task, endless = on_io(io, late(None))
        assert begun.acquire(timeout=PATIENCE)
        assert begun.acquire(timeout=PATIENCE)
        task.interrupt()
        assert isinstance(timed.exception(PATIENCE), TimedOut)
        assert isinstance(endless.exception(PATIENCE), Interrupted)
        go.set()


class TestInterrupt:
    def test_while_it_connects(self, io: IoThread, silent: Url) -> None:
        connection = HttpConnection(HttpSettings(connect_seconds=PATIENCE))
        task, outcome = on_io(io, get(connection, silent))
        assert wait_until(lambda: task.wait is not None)
        task.interrupt()
        assert isinstance(outcome.exception(PATIENCE), Interrupted)

    def test_while_it_shakes_hands(self, io: IoThread, scripted: Scripted, client_side: ssl.SSLContext) -> None:
        reached = threading.Event()

        def hang(server: RawServer, peer: socket.socket) -> None:
            peer.recv(1)
            reached.set()
            while peer.recv(1000):
                pass

        connection = HttpConnection(HttpSettings(tls=client_side))
        task, outcome = on_io(io, get(connection, scripted(hang, scheme="https").url))
        assert reached.wait(PATIENCE)
        task.interrupt()
        assert isinstance(outcome.exception(PATIENCE), Interrupted)

    @pytest.mark.parametrize("by", ["task", "connection"])
    def test_while_it_waits_for_the_response(self, by: str, io: IoThread, scripted: Scripted) -> None:
        reached = threading.Event()

        def hang(server: RawServer, peer: socket.socket) -> None:
            server.request_of(peer)
            reached.set()
            peer.recv(1)

        connection = HttpConnection(HttpSettings())
        task, outcome = on_io(io, get(connection, scripted(hang, answering(ok())).url))
        assert reached.wait(PATIENCE)
        (task if by == "task" else connection).interrupt()
        assert isinstance(outcome.exception(PATIENCE), Interrupted)
        connection.close()

    def test_when_it_is_about_to_go_on(self, io: IoThread) -> None:
        """It is raised once, in the next wait, and what has arrived before is not lost."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        received: list[bytes] = []

        async def receive() -> None:
            try:
                while True:
                    await Ready(ours)
                    received.append(ours.recv(100))
            except Interrupted:
                await Turn()
                raise

        def resume_and_interrupt() -> None:
            theirs.send(b"progress")
            io.resume(task, True)
            task.interrupt()
            task.interrupt()

        with ours, theirs:
            task, outcome = on_io(io, receive())
            assert wait_until(lambda: task.wait is not None)
            io.post(resume_and_interrupt)
            assert isinstance(outcome.exception(PATIENCE), Interrupted)
        assert received == [b"progress"]

    def test_twice_counts_once(self, io: IoThread) -> None:
        async def clean_up() -> str:
            try:
                await Sleep(time.monotonic() + PATIENCE)
            except Interrupted:
                await Turn()
            return "cleaned up"

        task, outcome = on_io(io, clean_up())
        assert wait_until(lambda: task.wait is not None)
        io.post(lambda: (task.interrupt(), task.interrupt()))
        assert outcome.result(PATIENCE) == "cleaned up"

    def test_one_that_has_ended_is_left_alone(self, io: IoThread) -> None:
        task, outcome = on_io(io, get_nothing())
        outcome.result(PATIENCE)
        task.interrupt()
        assert on_io(io, get_nothing())[1].result(PATIENCE) is None


class TestItsLife:
    def test_it_ends_with_its_last_user(self, no_leaks: None) -> None:
        first, second = object(), object()
        io = hold_io_thread(first, lambda: None)
        assert hold_io_thread(second, lambda: None) is io
        assert release_io_thread(first, io)
        assert on_io(io, get_nothing())[1].result(PATIENCE) is None
        assert release_io_thread(second, io, PATIENCE)
        assert release_io_thread(second, io, PATIENCE), "again is harmless"
        assert "gaia-http" not in [thread.name for thread in threading.enumerate()]

    def test_what_still_waits_then_is_interrupted(self, no_leaks: None) -> None:
        user = object()
        io = hold_io_thread(user, lambda: None)

        async def endless() -> None:
            await Sleep(time.monotonic() + 1000)

        _, outcome = on_io(io, endless())
        assert release_io_thread(user, io, PATIENCE)
        assert isinstance(outcome.exception(PATIENCE), Interrupted)

    def test_users_are_told_if_it_fails(self, no_leaks: None) -> None:
        user, told = object(), threading.Event()
        io = hold_io_thread(user, told.set)

        def fail() -> None:
            raise LookupError("a mistake of ours")

        io.post(fail)
        assert told.wait(PATIENCE)
        assert release_io_thread(user, io, PATIENCE)
        other = hold_io_thread(user, lambda: None)
        assert on_io(other, get_nothing())[1].result(PATIENCE) is None
        assert release_io_thread(user, other, PATIENCE)

    def test_where_no_thread_can_be_started_that_is_said(self, no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                hold_io_thread(object(), lambda: None)

    @pytest.mark.process
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_a_forked_child_has_one_of_its_own(self, io: IoThread) -> None:
        pid = os.fork()
        if pid == 0:
            user = object()
            own = hold_io_thread(user, lambda: None)
            worked = own is not io and on_io(own, get_nothing())[1].result(PATIENCE) is None
            os._exit(0 if worked and release_io_thread(user, own, PATIENCE) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert on_io(io, get_nothing())[1].result(PATIENCE) is None

    def test_old_deadlines_are_forgotten(self, io: IoThread) -> None:
        async def brief() -> None:
            await Job(lambda: None, None, time.monotonic() + 1000)

        for _ in range(300):
            on_io(io, brief())[1].result(PATIENCE)
        assert len(io._timers) < 200


def test_an_exception_within_post_does_not_leave_the_thread_asleep(io: IoThread) -> None:
    """A signal handler may raise it, at any place."""
    for place in itertools.count():
        assert wait_until(lambda: io._asleep)
        where = raise_within(lambda: io.post(lambda: None), place, ("gaia/http/io_thread.py",))
        later = Latch()
        io.post(later.open)
        assert later.wait(PATIENCE), where
        if not where:
            break
    assert place > 1
