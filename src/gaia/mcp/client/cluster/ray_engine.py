"""Ray as the engine: one actor per host."""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
import time
import uuid
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError, RuntimeEnvSetupError

from gaia.handover import mark_engine_thread, on_engine_thread
from gaia.locks import reentrant_lock
from gaia.log import get_logger
from gaia.mcp.client.cluster.link import ClusterLeft, HostGone, HostLost, OnAnswer
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.client.cluster.ray_session import RaySession, present_session
from gaia.mcp.client.cluster.report import NodeRoom, actor_name, shortage
from gaia.mcp.client.rpc.channel import Outgoing
from gaia.mcp.errors import StartFailed

__all__ = ["NAMESPACE", "RayEngine", "join", "rooms"]

logger = get_logger(__name__)

_NO_CLUSTER = (
    "there is no Ray cluster to place it on: start one with 'ray start --head', and set RAY_ADDRESS to the address "
    'that it prints, or give that as "address" of the placement'
)

NAMESPACE = "gaia-mcp"
"""Of all actors for placed servers, so that they are found."""

_SHARED = "shared"
"""In the name of an actor that several programs use: there is one of that name."""

_CONTROL_THREADS = 4
_POLL_THREADS = 2
"""One that waits, and one for the next poll, which ends it."""

_REACH_SECONDS = 5.0

_CALLER_SECONDS = 0.02
"""That a caller's thread waits for an answer itself."""

_WITHOUT_PLACE = {"DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING"}
"""Ray's states of actors that have none."""

_joining = reentrant_lock()
"""One thread joins the cluster, and the others wait for it."""


def _actor_class() -> type:
    """A host as an actor, which is code for Ray, and not a class of a module that a worker would have to load first.

    Ray has other work wait, in steps of a second, until an actor has begun. Loading gaia takes a third of a second, or
    more on a machine that has just lost something, so the actor begins first.
    """

    class PlacedServerHost:
        """Ray shows the name of this class, and of the server; it never sees its command."""

        def __init__(self, is_shared: bool) -> None:
            self._is_shared = is_shared
            self._context = ray.get_runtime_context()
            self._process = uuid.uuid4().hex
            self._host: Any = None
            self._problem: BaseException | None = None
            self._loading = threading.Thread(target=self._load, daemon=True)
            self._loading.start()

        def _load(self) -> None:
            try:
                from gaia.mcp.client.cluster.host import ServerHost

                # Ray starts the actor again, but not after an orderly end.
                self._host = ServerHost(
                    self._context.get_node_id(),
                    on_over=lambda: os._exit(1),
                    resources=self._context.get_assigned_resources(),
                    on_unused=self._on_unused if self._is_shared else None,
                )
            except BaseException as error:  # noqa: BLE001 - of what is installed on the node
                self._problem = error

        def _on_unused(self) -> None:
            # Only one of its own tasks can end an actor for good. It may run in another process by then.
            self._context.current_actor.end.options(concurrency_group="control").remote(self._process)

        def end(self, process: str) -> None:
            """End the actor for good, if it is still in that process."""
            if process == self._process:
                ray.actor.exit_actor()

        def call(self, asked: bytes) -> bytes:
            """Of all messages the most frequent, so it has a method of its own: each further argument costs time."""
            host = self._host or self._loaded()
            answer: bytes = host.call(asked)
            return answer

        def tell(self, method: str, *arguments: Any) -> Any:
            """Any other message for the host, by the name of its method."""
            return getattr(self._loaded(), method)(*arguments)

        def _loaded(self) -> Any:
            self._loading.join()
            if self._problem is not None:
                raise self._problem
            return self._host

    return PlacedServerHost


class RayEngine:
    """Starts actors in the cluster that the program has joined, or that it joins now."""

    def start(self, name: str, placement: Placement) -> RayLink:
        join(placement.address)
        demand = placement.demand
        options: dict[str, Any] = {
            "num_cpus": demand.pop("CPU", 0),
            "num_gpus": demand.pop("GPU", 0),
            "resources": {name: amount for name, amount in demand.items() if name != "memory"} or None,
            "scheduling_strategy": "SPREAD" if placement.strategy == "spread" else "DEFAULT",
            # A lost host is Ray's business, a lost call is ours: Ray must not send one twice.
            "max_restarts": -1,
            "max_task_retries": 0,
            "namespace": NAMESPACE,
            "concurrency_groups": {
                "calls": placement.max_pending,
                "control": _CONTROL_THREADS,
                "poll": _POLL_THREADS,
            },
        }
        if "memory" in demand:
            options["memory"] = int(demand["memory"])
        elif placement.strategy == "spread" and not placement.demand:
            # Ray begins with a random node for each actor that needs nothing, and spreads none of them then. Every node
            # has a byte.
            options["memory"] = 1
        if placement.runtime_env is not None:
            options["runtime_env"] = placement.runtime_env
        is_shared = placement.lifetime == "detached"
        if is_shared:
            options |= {
                "name": actor_name(placement.name or name, _SHARED),
                "lifetime": "detached",
                "get_if_exists": True,
            }
        else:
            options["name"] = actor_name(name, uuid.uuid4().hex[:12])
        with _joining:
            session = present_session()
        try:
            return RayLink(ray.remote(**options)(_actor_class()).remote(is_shared), placement, session)
        except ValueError as error:
            # Such as a part of a GPU too many, or a directory as the `runtime_env` of an actor.
            raise StartFailed(f"Ray does not accept the placement: {error}") from error


def join(address: str | None, *, is_asked_for: bool = False) -> None:
    """Join the cluster at ``RAY_ADDRESS`` or `address`, unless the program is in one. Raises `StartFailed`.

    An address that `is_asked_for` comes before the variable.
    """
    with _joining:
        if ray.is_initialized():
            return
        in_environment = os.environ.get("RAY_ADDRESS")
        address = (address or in_environment) if is_asked_for else (in_environment or address)
        if address is None:
            raise StartFailed(_NO_CLUSTER)
        try:
            _reach(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            _log_messages()
        except (RayError, OSError, ValueError, RuntimeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            # The variable comes before what the placement says, and may be an old one.
            where = f"{address} (RAY_ADDRESS)" if address == in_environment else address
            raise StartFailed(
                f"the Ray cluster at {where} cannot be joined: {text}; "
                "'ray start --head' starts one, and prints its address"
            ) from error


def _log_messages() -> None:
    """Keep what Ray tells every driver of lost nodes off standard output, which may be a protocol's."""
    from ray._private import worker

    def log(data: dict[str, Any], *_: object, **__: object) -> None:
        logger.debug("ray_message", text="\n".join(map(str, data.get("lines", ()))))

    # Ray has no setting for it. Where the function is called otherwise some day, messages are shown as Ray shows them.
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = log


def _reach(address: str) -> None:
    """Raise OSError if nothing is there: Ray would try for a long time, and say so on the terminal."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()


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
            self._is_driver and call.leave(_CallersWait(reference, answered, call.deadline))
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
            logger.debug("actor_not_killed", error=_first_line(error))

    def withdraw(self) -> None:
        # Ray would have it wait for ever, and a cluster that grows on demand would add a node for it.
        if not self._session.is_over and _state_of(self.actor_id) in _WITHOUT_PLACE:
            self.kill()


def _state_of(actor_id: str) -> str | None:
    # As for what nodes have free: Ray offers it to its dashboard only.
    try:
        from ray._private.state import actors

        return str(actors(actor_id)["State"])
    except Exception as error:  # noqa: BLE001 - Ray promises nothing about it
        logger.debug("actor_state_not_known", error=_first_line(error))
        return None


def rooms() -> list[NodeRoom]:
    """The nodes of the cluster that are alive."""
    free = _free_by_node()
    return [
        NodeRoom(
            node=str(node.get("NodeManagerHostname")),
            node_id=str(node.get("NodeID")),
            total=dict(node["Resources"]),
            free=None if free is None else free.get(str(node.get("NodeID")), {}),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def _free_by_node() -> dict[str, dict[str, float]] | None:
    # Ray offers this to its dashboard only, a process of its own that is often not there.
    try:
        from ray._private.state import available_resources_per_node

        return dict(available_resources_per_node())
    except Exception as error:  # noqa: BLE001 - Ray promises nothing about it
        logger.debug("free_resources_not_known", error=_first_line(error))
        return None


class _CallersWait:
    """The wait for the answer to a call, on the thread of its caller. Implements `Errand`.

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
    return kind(_first_line(error))


def _first_line(error: BaseException) -> str:
    if isinstance(error, RayTaskError):
        # Of the actor itself; Ray's own text begins with where it was.
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    if isinstance(error, RuntimeEnvSetupError):
        # Below tracebacks of Ray's own code.
        return f"Ray could not set up its runtimeEnv: {lines[-1].strip()}"
    return lines[0] if lines else type(error).__name__
