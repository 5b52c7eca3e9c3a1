import threading
from queue import SimpleQueue

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.runtime.clock import SystemClock
from tests.waiting import PATIENCE, wait_until


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "mcp-cluster"]


class TestThread:
    def test_it_runs_while_it_has_users(self) -> None:
        loop = ClusterLoop(SystemClock())
        assert threads() == []
        loop.hold("a")
        loop.hold("b")
        assert threads() == ["mcp-cluster"]
        loop.let_go("a")
        ran = threading.Event()
        loop.post(ran.set)
        assert ran.wait(PATIENCE)
        loop.let_go("b")
        assert wait_until(lambda: threads() == [])

    def test_it_outlives_a_task_that_raises(self) -> None:
        loop, ran = ClusterLoop(SystemClock()), threading.Event()
        loop.hold("a")
        loop.post(lambda: 1 / 0)
        loop.post(ran.set)
        assert ran.wait(PATIENCE)
        loop.let_go("a")
        assert wait_until(lambda: threads() == [])

    def test_it_starts_again(self) -> None:
        loop = ClusterLoop(SystemClock())
        for _ in range(2):
            ran = threading.Event()
            loop.hold("a")
            loop.post(ran.set)
            assert ran.wait(PATIENCE)
            loop.let_go("a")
            assert wait_until(lambda: threads() == [])


class TestAlarms:
    def test_one_goes_off_on_the_thread(self) -> None:
        loop, ran_on = ClusterLoop(SystemClock()), SimpleQueue[str]()
        loop.hold("a")
        loop.alarm(0.01, lambda: ran_on.put(threading.current_thread().name))
        assert ran_on.get(timeout=PATIENCE) == "mcp-cluster"
        loop.let_go("a")
        assert wait_until(lambda: threads() == [])

    def test_those_of_a_loop_without_users_keep_no_thread(self) -> None:
        loop = ClusterLoop(SystemClock())
        loop.hold("a")
        loop.alarm(3600.0, lambda: None)
        loop.let_go("a")
        loop.wait_idle()
        assert wait_until(lambda: threads() == [])

    def test_an_alarm_that_is_cancelled_does_nothing(self) -> None:
        loop, cancelled, later = ClusterLoop(SystemClock()), threading.Event(), threading.Event()
        loop.hold("a")
        loop.alarm(0.05, cancelled.set).cancel()
        loop.alarm(0.06, later.set)
        assert later.wait(PATIENCE)
        assert not cancelled.is_set()
        loop.let_go("a")
        assert wait_until(lambda: threads() == [])
