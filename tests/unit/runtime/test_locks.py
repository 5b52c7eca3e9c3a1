"""Locks for code that is interrupted by signal handlers, finalizers and forks."""

import gc
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from gaia.runtime.locks import (
    Latch,
    TimedQueue,
    WeakObjects,
    completed,
    end_once,
    get_within,
    import_apart,
    reentrant_lock,
)
from tests.unit.runtime.conftest import run_program
from tests.waiting import PATIENCE


class TestLatch:
    def test_it_is_closed_until_it_is_opened(self) -> None:
        latch = Latch()
        assert not latch.is_open
        assert not latch.wait(0)
        latch.open()
        latch.open()
        assert latch.is_open
        assert latch.wait()

    def test_all_that_wait_go_on(self) -> None:
        latch, passed = Latch(), []
        threads = [threading.Thread(target=lambda: passed.append(latch.wait(PATIENCE))) for _ in range(5)]
        for thread in threads:
            thread.start()
        latch.open()
        for thread in threads:
            thread.join(PATIENCE)
        assert passed == [True] * 5

    def test_an_exception_in_a_thread_that_has_just_passed_stops_no_other(self) -> None:
        latch = Latch()

        class Interrupted:
            """The gate, and an interrupt right after it was acquired."""

            def __init__(self, gate: threading.Lock) -> None:
                self.gate = gate
                self.release = gate.release

            def acquire(self, *arguments: object) -> bool:
                latch.open()
                self.gate.acquire(False)
                raise KeyboardInterrupt

        gate = latch._gate
        latch._gate = Interrupted(gate)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            latch.wait()
        assert not gate.locked()


class TestWeakObjects:
    class Thing:
        pass

    def test_they_are_there_as_long_as_something_else_holds_them(self) -> None:
        objects: WeakObjects[object] = WeakObjects()
        one, other = self.Thing(), self.Thing()
        objects.add(one)
        objects.add(one)
        objects.add(other)
        assert objects.present() == [one, other]
        objects.discard(other)
        objects.discard(other)
        assert objects.present() == [one]
        objects.add(other)
        del one
        gc.collect()
        assert objects.present() == [other]
        objects.clear()
        assert objects.present() == []

    def test_they_can_be_looked_at_while_others_are_added(self, switching: None) -> None:
        objects: WeakObjects[object] = WeakObjects()
        kept: list[object] = []
        done = threading.Event()

        def add() -> None:
            for _ in range(20_000):
                kept.append(self.Thing())
                objects.add(kept[-1])
            done.set()

        thread = threading.Thread(target=add)
        thread.start()
        while not done.is_set():
            objects.present()
        thread.join(PATIENCE)
        assert len(objects.present()) == len(kept)


def test_the_thread_that_holds_a_lock_may_take_it_again() -> None:
    lock = reentrant_lock()
    with lock, lock:
        assert not _taken_by_another_thread(lock)
    assert _taken_by_another_thread(lock)


def _taken_by_another_thread(lock: threading.RLock) -> bool:
    taken: list[bool] = []

    def take() -> None:
        if lock.acquire(False):
            lock.release()
            taken.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(PATIENCE)
    return bool(taken)


class TestImporting:
    def test_code_that_interrupts_an_import_gets_the_whole_module(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "slow_module.py").write_text("import tests.unit.test_locks as t\nt.halfway()\nwhole = True\n")
        begun, go_on, interrupted = threading.Event(), threading.Event(), []

        def halfway() -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        monkeypatch.setattr(sys.modules[__name__], "halfway", halfway, raising=False)
        monkeypatch.setitem(sys.modules, "tests.unit.test_locks", sys.modules[__name__])

        def load() -> None:
            import_apart("slow_module")
            interrupted.append(sys.modules["slow_module"].whole)

        threads = [threading.Thread(target=load) for _ in range(2)]
        threads[0].start()
        assert begun.wait(PATIENCE)
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert interrupted == [True, True]
        monkeypatch.delitem(sys.modules, "slow_module")

    def test_what_cannot_be_imported_is_left_to_the_import_statement(self) -> None:
        import_apart("there_is_no_such_module")


FORK = """
import os, signal, sys, threading
from gaia.agents.base.registry import ToolRegistry, _lock
from gaia.runtime import log
from gaia.runtime.locks import reentrant_lock
from gaia.mcp import agent_tools
from gaia.mcp.client import MCPClientManager

registry, manager = ToolRegistry({}), MCPClientManager()
tools = agent_tools.RegisteredTools()
of_module = (log._registration, agent_tools._lock, manager._engine.registry._lock, manager.config._lock)
held, go_on = threading.Event(), threading.Event()

def hold():
    with of_module[0], of_module[1], of_module[2], of_module[3]:
        held.set()
        go_on.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
with reentrant_lock(), _lock:
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        class Secrets:
            def redact(self, text): return text
        secrets = Secrets()
        log.mask_secrets_of(secrets)
        tools.remove_all(registry)
        registry["x"] = {"name": "x"}
        manager.status()
        manager.disconnect_all()
if child == 0:
    sys.exit(0 if list(registry) == ["x"] else 1)
go_on.set()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
registry["y"] = {"name": "y"}
sys.exit(status if list(registry) == ["y"] else 99)
"""


HELD = """
import os, threading
from gaia.agents.base import registry as module
from gaia.agents.base.registry import ToolRegistry

registry, began, go_on, forked = ToolRegistry({}), threading.Event(), threading.Event(), threading.Event()

def change():
    with module._holding():
        began.set()
        # The other thread forks only when this one is done.
        assert not forked.wait(0.3)
        registry["x"] = {"name": "x"}

thread = threading.Thread(target=change)
thread.start()
began.wait()
child = os.fork()
forked.set()
if child == 0:
    os._exit(0 if list(registry) == ["x"] else 1)
thread.join()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(FORK, id="a child finds all locks free"),
        pytest.param(HELD, id="it waits for a thread that changes a registry"),
    ],
)
def test_a_fork(program: str) -> None:
    run_program(program)


class TestGetWithin:
    def test_an_item_that_is_there_or_comes_is_returned(self) -> None:
        source = TimedQueue[str]()
        source.put("first")
        assert get_within(source, PATIENCE) == "first"
        threading.Timer(0.0, source.put, ["second"]).start()
        assert get_within(source, PATIENCE) == "second"

    def test_items_come_in_their_order_and_none_is_lost(self) -> None:
        source = TimedQueue[int]()
        thread = threading.Thread(target=lambda: [source.put(number) for number in range(2000)])
        thread.start()
        assert [get_within(source, PATIENCE) for _ in range(2000)] == list(range(2000))
        thread.join(PATIENCE)

    @pytest.mark.parametrize("seconds", [0.001, 0.000_002, 0.0, -1.0])
    def test_an_empty_queue_is_waited_for_no_longer_than_that(self, seconds: float) -> None:
        source = TimedQueue[str]()
        for _ in range(50):
            with pytest.raises(queue.Empty):
                get_within(source, seconds)

    @pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="about signals")
    def test_a_signal_in_the_waiting_thread_makes_it_no_wait_without_end(self) -> None:
        """With the timeout of `SimpleQueue.get`, it does in Python 3.11 and 3.12."""
        switch_interval, handler = sys.getswitchinterval(), signal.signal(signal.SIGUSR1, lambda *_: None)
        try:
            for _ in range(10):
                waiting, ended = threading.Event(), threading.Event()
                thread = threading.Thread(target=wait_briefly, args=(waiting, ended), daemon=True)
                thread.start()
                assert waiting.wait(PATIENCE)
                # From the signal until the time is over, the thread cannot go on.
                sys.setswitchinterval(10.0)
                until = time.monotonic() + 2 * BRIEFLY
                while time.monotonic() < until and thread.ident is not None:
                    signal.pthread_kill(thread.ident, signal.SIGUSR1)
                sys.setswitchinterval(switch_interval)
                assert ended.wait(PATIENCE)
        finally:
            sys.setswitchinterval(switch_interval)
            signal.signal(signal.SIGUSR1, handler)


BRIEFLY = 0.02


def wait_briefly(waiting: threading.Event, ended: threading.Event) -> None:
    waiting.set()
    with pytest.raises(queue.Empty):
        get_within(TimedQueue[str](), BRIEFLY)
    ended.set()


class TestEndOnce:
    def test_only_the_first_outcome_counts_even_if_the_second_is_equal(self) -> None:
        claim: dict[None, tuple[Any, ...]] = {}
        conclude = Mock()
        assert end_once(claim, (None, str(0)), conclude)
        for outcome in ((None, str(0)), ("b", 2)):
            assert not end_once(claim, outcome, conclude)
        assert conclude.call_args_list == [call(None, "0")]

    def test_an_interrupted_end_is_completed_and_the_interruption_raised(self) -> None:
        conclude = Mock(side_effect=[KeyboardInterrupt, None])
        with pytest.raises(KeyboardInterrupt):
            end_once({}, (1,), conclude)
        assert conclude.call_args_list == [call(1), call(1)]

    def test_an_interruption_before_the_claim_ends_nothing(self) -> None:
        class Interrupted(dict[None, tuple[Any, ...]]):
            def setdefault(self, *_: Any) -> Any:
                raise KeyboardInterrupt

        conclude = Mock()
        with pytest.raises(KeyboardInterrupt):
            end_once(Interrupted(), (1,), conclude)
        conclude.assert_not_called()


def test_a_step_is_run_once_and_again_if_it_is_interrupted() -> None:
    step = Mock(side_effect=[3, KeyboardInterrupt, 3])
    assert completed(step) == 3
    step.assert_called_once_with()
    with pytest.raises(KeyboardInterrupt):
        completed(step)
    assert step.call_count == 3
