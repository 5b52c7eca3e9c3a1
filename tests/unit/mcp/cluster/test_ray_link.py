import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.link import ClusterLeft, HostGone, HostLost
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError
from gaia.mcp.rpc.call import Call
from gaia.runtime.clock import SystemClock
from gaia.runtime.handover import on_engine_thread

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.cluster import ray_cluster, ray_link, ray_session  # noqa: E402 - needs Ray

CLOCK = SystemClock()
pytestmark = pytest.mark.usefixtures("program")


class FakeActor:
    """Only its methods' options are asked for."""

    def __getattr__(self, name: str) -> "FakeActor":
        return self

    def options(self, **_: object) -> "FakeActor":
        return self


class TestWhyNotPlaced:
    def reason(self, monkeypatch: pytest.MonkeyPatch, free: dict[str, float], **placement: object) -> str:
        nodes = [
            {"Alive": True, "Resources": {"CPU": 2.0, "browser": 1.0}},
            {"Alive": False, "Resources": {"gpu": 8.0}},
        ]
        monkeypatch.setattr(ray, "nodes", lambda: nodes)
        monkeypatch.setattr(ray, "available_resources", lambda: free)
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        # Other tests of this process may have joined a cluster.
        monkeypatch.setattr(ray_cluster, "_free_by_node", lambda: None)
        link = ray_link.RayLink(FakeActor(), Placement(**placement), ray_session.RaySession())  # type: ignore[arg-type]
        return link.why_not_placed()

    def test_a_resource_that_no_node_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reason = self.reason(monkeypatch, {}, resources={"gpu": 1})
        assert "it needs 1 of the resource 'gpu', and none of the 1 nodes has any" in reason

    def test_more_than_any_node_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "none of the 1 nodes has more than 2" in self.reason(monkeypatch, {}, num_cpus=4)

    def test_a_resource_that_is_in_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reason = self.reason(monkeypatch, {"CPU": 2.0}, resources={"browser": 1})
        assert "all of the resource 'browser' is in use: it needs 1, and 0 is left" in reason

    def test_nothing_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "not started its actor yet" in self.reason(monkeypatch, {"CPU": 2.0}, num_cpus=1)


class Reference:
    """Of an answer that is not there yet."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def future(self) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


class Answering(FakeActor):
    """All its methods answer with the same reference."""

    def __init__(self) -> None:
        self.reference = Reference()

    def remote(self, *_: object) -> Reference:
        return self.reference


class Calls:
    """A `CallRoute` of calls to one actor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, get: Callable[..., Any]) -> None:
        monkeypatch.setattr(ray, "get", get)
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        self.actor = Answering()
        self.link = ray_link.RayLink(self.actor, Placement(), ray_session.RaySession(ClusterLoop(CLOCK)))
        self.failures: list[BaseException] = []
        self.call = Call(1, "ping", None, CLOCK.monotonic(), 60.0)

    def perform(self) -> Any:
        self.call.route = self
        self.call.perform(CLOCK)
        return self.call.result

    def submit(self, call: Call) -> bool:
        self.link.call(b"asked", lambda answer, failure: self._answered(call, answer, failure), call)
        # What a thread of Ray's does.
        for future in self.actor.reference.futures:
            future.set_result({"by": "Ray"})
        return True

    def _answered(self, call: Call, answer: Any, failure: BaseException | None) -> None:
        if failure is None:
            call.finish(result=answer)
        else:
            self.failures.append(failure)
            call.finish(error=MCPError("lost"))

    def expire(self, call: Call) -> bool:
        return call.finish(error=call.timed_out())

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        return call.finish(error=error)


def told() -> Future[Any]:
    """What a thread of Ray's has told."""
    future: Future[Any] = Future()
    future.set_result({"by": "Ray"})
    return future


class TestWaitingForACall:
    def test_the_thread_of_the_caller_receives_an_answer_that_comes_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[int] = []

        def get(reference: Reference, timeout: float) -> Any:
            threads.append(threading.get_ident())
            assert on_engine_thread()
            assert 0 < timeout < 1
            return {"by": "caller"}

        calls = Calls(monkeypatch, get)
        assert calls.perform() == {"by": "caller"}
        assert threads == [threading.get_ident()]
        assert not on_engine_thread()
        assert not calls.actor.reference.futures

    def test_one_that_comes_later_is_told_by_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def get(reference: Reference, timeout: float) -> Any:
            reference.future = told  # type: ignore[method-assign]
            raise ray.exceptions.GetTimeoutError

        assert Calls(monkeypatch, get).perform() == {"by": "Ray"}

    def test_a_thread_that_does_not_wait_for_the_call_does_not_wait_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = Calls(monkeypatch, pytest.fail)
        calls.submit(calls.call)
        assert calls.call.result == {"by": "Ray"}

    def test_a_task_keeps_its_processors(self, monkeypatch: pytest.MonkeyPatch, program: SimpleNamespace) -> None:
        program.mode = ray.WORKER_MODE
        assert Calls(monkeypatch, pytest.fail).perform() == {"by": "Ray"}

    def test_waiting_does_not_have_ray_start_another_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def sent(*_: object) -> Reference:
            monkeypatch.setattr(ray, "is_initialized", lambda: False)
            return calls.actor.reference

        calls = Calls(monkeypatch, pytest.fail)
        calls.actor.reference.future = told  # type: ignore[method-assign]
        monkeypatch.setattr(calls.actor, "remote", sent)
        assert calls.perform() == {"by": "Ray"}

    def test_the_deadline_of_the_call_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def get(reference: Reference, timeout: float) -> Any:
            assert timeout == 0
            raise ray.exceptions.GetTimeoutError

        calls = Calls(monkeypatch, get)
        calls.call.deadline = CLOCK.monotonic()
        calls.perform()
        assert isinstance(calls.call.error, CallTimeout)

    def test_an_interrupted_caller_leaves_the_answer_to_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def get(reference: Reference, timeout: float) -> Any:
            raise KeyboardInterrupt

        calls = Calls(monkeypatch, get)
        with pytest.raises(KeyboardInterrupt):
            calls.perform()
        assert isinstance(calls.call.error, CallCancelled)
        assert calls.actor.reference.futures

    def test_a_lost_host_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def get(reference: Reference, timeout: float) -> Any:
            raise ray.exceptions.ActorUnavailableError("restarting", None)

        calls = Calls(monkeypatch, get)
        calls.perform()
        assert [type(failure) for failure in calls.failures] == [HostLost]


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (ray.exceptions.ActorUnavailableError("restarting", None), HostLost, "restarting"),
            (ray.exceptions.ActorDiedError(), HostGone, "died"),
            (
                ray.exceptions.RayTaskError("tell", "a traceback", ImportError("no gaia")),
                HostGone,
                "ImportError: no gaia",
            ),
            (
                ray.exceptions.RuntimeEnvSetupError("Traceback of Ray:\n  setup()\nRuntimeError: no virtualenv\n"),
                HostGone,
                "could not set up its runtimeEnv: RuntimeError: no virtualenv",
            ),
        ],
    )
    def test_what_the_driver_is_told(self, error: Exception, kind: type[HostLost], text: str) -> None:
        told: list[Any] = []
        reference = Reference()
        ray_link._await(reference, lambda answer, failure: told.append((answer, failure)))
        reference.futures[0].set_exception(error)
        ((answer, failure),) = told
        assert answer is None
        assert type(failure) is kind
        assert text in str(failure)


class TestLeavingTheCluster:
    def test_nothing_is_sent_that_would_have_ray_start_another_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        # This actor has no method `remote` that could be called.
        link = ray_link.RayLink(FakeActor(), Placement(), ray_session.RaySession(ClusterLoop(CLOCK)))
        told: list[Any] = []
        call = Call(1, "ping", None, CLOCK.monotonic(), 60.0)
        link.call(b"", lambda answer, failure: told.append((answer, failure)), call)
        link.kill()
        assert link.is_left
        ((answer, failure),) = told
        assert answer is None
        assert isinstance(failure, ClusterLeft)
        assert "has left the cluster" in link.why_not_placed()


class TestWithdrawing:
    @pytest.mark.parametrize(
        ("state", "kills"), [("PENDING_CREATION", 1), ("RESTARTING", 1), ("ALIVE", 0), ("DEAD", 0)]
    )
    def test_only_an_actor_without_a_place_is_killed(
        self, monkeypatch: pytest.MonkeyPatch, state: str, kills: int
    ) -> None:
        killed: list[object] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "kill", lambda actor, **_: killed.append(actor))
        monkeypatch.setattr(ray_session, "identity", lambda: ("node", "job"))
        monkeypatch.setattr(ray_link, "state_of", lambda _: state)
        monkeypatch.setattr(ray_link.RayLink, "actor_id", "a")
        ray_link.RayLink(FakeActor(), Placement(), ray_session.RaySession()).withdraw()
        assert len(killed) == kills
