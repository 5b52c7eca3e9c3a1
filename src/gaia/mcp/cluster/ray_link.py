"""The actor of one host, as the program sees it: what is sent to it, and how the answers come."""

from __future__ import annotations

import functools
import time
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError, RuntimeEnvSetupError

from gaia.mcp.cluster.link import ClusterLeft, HostGone, HostLost, OnAnswer
from gaia.mcp.cluster.ray_cluster import first_line, rooms, state_of
from gaia.mcp.cluster.ray_session import RaySession
from gaia.mcp.cluster.report import shortage
from gaia.mcp.config.placement import Placement
from gaia.mcp.rpc.channel import Outgoing
from gaia.runtime.handover import mark_engine_thread, on_engine_thread
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_CALLER_SECONDS = 0.02
"""That a caller's thread waits for an answer itself."""

_WITHOUT_PLACE = {"DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING"}
"""Ray's states of actors that have none."""


class RayLink:
    """The actor of one host. Implements `HostLink`."""

    def __init__(self, actor: Any, placement: Placement, session: RaySession) -> None:
        self._actor = actor
        self._session = session
        self._placement = placement
        # In a task, waiting gives its processors away for the time, and in an actor with an event loop Ray warns of it.
        self._is_driver = ray.get_runtime_context().worker.mode == ray.SCRIPT_MODE
        self._call: Any = actor.call.options(concurrency_group="calls", name="call")
        self._poll: Any = actor.tell.options(concurrency_group="poll", name="poll")
        self._tell: Any = actor.tell.options(concurrency_group="control", name="tell")
        self._greet: Any = actor.tell.options(concurrency_group="control", name="greet")

    def greet(self, settings: bytes, on_answer: OnAnswer) -> None:
        self._ask(self._greet, ("greet", settings), on_answer)

    def call(self, asked: bytes, on_answer: OnAnswer, call: Outgoing) -> None:
        answered = self._expect(on_answer)
        reference = self._send(self._call, (asked,), answered)
        if reference is not None and not (
            self._is_driver and call.run_in_caller(_CallersWait(reference, answered, call.deadline))
        ):
            _await(reference, answered)

    def poll(self, incarnation: str, acknowledged: int, on_answer: OnAnswer) -> None:
        self._ask(self._poll, ("poll", incarnation, acknowledged), on_answer)

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self._ask(self._tell, (method, *arguments), on_answer)

    def _ask(self, method: Any, arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        answered = self._expect(on_answer)
        reference = self._send(method, arguments, answered)
        if reference is not None:
            _await(reference, answered)

    def _expect(self, on_answer: OnAnswer) -> OnAnswer:
        return functools.partial(self._session.answered, self._session.expect(on_answer))

    def _send(self, method: Any, arguments: tuple[object, ...], answered: OnAnswer) -> Any:
        """The reference to the answer; None if it could not be sent, which has been told then."""
        if self._session.is_over:
            answered(None, ClusterLeft())
            return None
        try:
            return method.remote(*arguments)
        except Exception as error:  # noqa: BLE001 - Ray raises more than its own exceptions when it is shut down
            failure = _failure(error)
            is_told = isinstance(failure, HostGone) or self._session.is_present
            answered(None, failure if is_told else ClusterLeft())
            return None

    @property
    def actor_id(self) -> str:
        return str(self._actor._actor_id.hex())

    @property
    def is_left(self) -> bool:
        return self._session.is_over

    def why_not_placed(self) -> str:
        if not self._session.is_present:
            return str(ClusterLeft())
        missing = shortage(self._placement.demand, rooms(), ray.available_resources())
        return missing or "Ray has not started its actor yet"

    def kill(self) -> None:
        if self._session.is_over:
            return
        try:
            ray.kill(self._actor, no_restart=True)
        except Exception as error:  # noqa: BLE001 - as above
            logger.debug("actor_not_killed", error=first_line(error))

    def withdraw(self) -> None:
        # Ray would have it wait for ever, and a cluster that grows on demand would add a node for it.
        if not self._session.is_over and state_of(self.actor_id) in _WITHOUT_PLACE:
            self.kill()


class _CallersWait:
    """The wait for the answer to a call, on the thread of its caller. Implements `CallerWork`.

    An answer that comes soon takes 0.1 ms less than by way of a thread of Ray's. The caller's thread cannot be woken
    in it, neither because the call has ended otherwise nor by a signal, so it is short.
    """

    def __init__(self, reference: Any, on_answer: OnAnswer, deadline: float) -> None:
        """`deadline` is a reading of `time.monotonic`."""
        self._reference = reference
        self._on_answer = on_answer
        self._deadline = deadline
        self._was_engine = on_engine_thread()

    def run(self) -> None:
        try:
            # The caller may hold locks that the application's log handlers need.
            mark_engine_thread()
            self._receive()
        finally:
            mark_engine_thread(self._was_engine)

    def ended(self) -> None:
        """Does nothing: `run` returns soon."""

    def abandon(self) -> None:
        mark_engine_thread(self._was_engine)
        _await(self._reference, self._on_answer)

    def _receive(self) -> None:
        if not ray.is_initialized():
            # The program has just left the cluster, and `ray.get` would start another one.
            _await(self._reference, self._on_answer)
            return
        seconds = max(0.0, min(_CALLER_SECONDS, self._deadline - time.monotonic()))
        try:
            answer = ray.get(self._reference, timeout=seconds)
        except GetTimeoutError:
            _await(self._reference, self._on_answer)
        except Exception as error:  # noqa: BLE001 - as above
            self._on_answer(None, _failure(error))
        else:
            self._on_answer(answer, None)


def _await(reference: Any, on_answer: OnAnswer) -> None:
    """Have a thread of Ray's tell the answer."""

    def done(future: Any) -> None:
        failure = future.exception()
        if failure is None:
            on_answer(future.result(), None)
        else:
            on_answer(None, _failure(failure))

    try:
        future = reference.future()
    except Exception as error:  # noqa: BLE001 - as above
        on_answer(None, _failure(error))
    else:
        future.add_done_callback(done)


def _failure(error: BaseException) -> HostLost:
    # The latter would be so again: hosts raise nothing of their own, and Ray does not set up an environment twice.
    is_final = isinstance(error, ActorDiedError | RayTaskError | RuntimeEnvSetupError)
    kind = HostGone if is_final else HostLost
    return kind(first_line(error))
