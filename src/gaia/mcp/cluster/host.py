"""On a node: starts one server and supervises it, for a driver elsewhere. Knows nothing of Ray.

Each method is one message of the driver. None of them raises, because Ray would write the exception to its logs: what
went wrong is part of the answer.
"""

from __future__ import annotations

import os
import platform
import socket
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from gaia import __version__
from gaia.mcp.cluster.host_call import CallOwner, HostRequest, NotApproved
from gaia.mcp.cluster.host_user import HostUser, differing
from gaia.mcp.cluster.hosted_server import HostedServer
from gaia.mcp.cluster.lease import Lease
from gaia.mcp.cluster.report import HostReport
from gaia.mcp.cluster.wire import (
    Answer,
    AskedCall,
    Greeting,
    HostSettings,
    Progressed,
    Reply,
    WireError,
    encode,
)
from gaia.mcp.errors import (
    CallCancelled,
    ConfigError,
    InvalidResponse,
    MCPError,
    ServerCrashed,
    SessionLost,
    UrlElicitationRequired,
)
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED
from gaia.mcp.supervision.maintenance import Maintenance
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_RELAYED_SECONDS = 24 * 3600.0
"""For calls that the driver relays: it gives them up, because it knows how long a person was asked meanwhile."""
_POLLS_PER_LEASE = 3
_UNUSED_SECONDS = 60.0
"""For the first user of a shared server to come, and for the last one to end this host."""


class ServerHost:
    """Thread-safe. All arguments and answers are bytes of `wire`."""

    def __init__(
        self,
        node_id: str | None = None,
        clock: Clock | None = None,
        on_over: Callable[[], object] = lambda: None,
        resources: Mapping[str, float] | None = None,
        on_unused: Callable[[], object] | None = None,
    ) -> None:
        """`node_id` is what the engine calls the node. `resources` are what this host occupies there.

        `on_over` is called, on a thread of its own, when the server was stopped because the driver is not heard of any
        more: it must see to it that another host takes the place of this one, which starts nothing again.

        With `on_unused` the server is shared: several drivers may use it, and `on_unused` is called, on a thread of its
        own, when the last of them has not been heard of for too long, or has left. It must see to it that this host
        ends for good.
        """
        self._node_id = node_id
        self._on_over = on_over
        self._on_unused = on_unused
        self._resources = dict(resources or {})
        self._clock: Clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._unused: Lease | None = None
        """Until when there has to be a user."""
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._server: HostedServer | None = None
        """Made by the first greeting."""
        self._users: dict[str, HostUser] = {}
        """By their incarnations."""
        self._stopped = False
        self._expect_user()

    def _expect_user(self) -> None:
        if self._on_unused is not None:
            self._unused = Lease(_UNUSED_SECONDS, self._clock)
            self._unused.watch(self._on_unused, "mcp-host-unused")

    def greet(self, data: bytes) -> bytes:
        """Begin to start the server, and to tell the driver about it. May come again: then nothing is started."""
        problem = user = None
        try:
            settings = msgspec.msgpack.decode(data, type=HostSettings)
            if settings.version == __version__:
                user = self._greeted(settings)
            else:
                problem = (
                    f"gaia-mcp {__version__} is installed on this node, and {settings.version} where the client runs; "
                    "install the same version on both"
                )
        except MCPError as error:
            problem = error.message
        except Exception as error:  # noqa: BLE001 - see the module; settings are not repeated, they hold secrets
            problem = f"the server cannot be hosted: {type(error).__name__}"
        return encode(
            Greeting(
                incarnation="" if user is None else user.incarnation,
                node=socket.gethostname(),
                node_id=self._node_id,
                pid=os.getpid(),
                problem=problem,
                clock=self._clock.monotonic(),
                is_over=problem is None and (user is None or user.lease.is_over),
            )
        )

    def _greeted(self, settings: HostSettings) -> HostUser | None:
        """The user whose settings these are; None if no more users are taken. Raises ConfigError."""
        with self._lock:
            known = next((user for user in self._users.values() if user.key == settings.user), None)
            if known is not None:
                known.lease.renew()
                return known
            if self._stopped:
                return None
            server = self._server
            differs = [] if server is None else differing(server.settings, settings)
            if differs:
                others = "another program shares" if len(self._users) == 1 else f"{len(self._users)} programs share"
                raise ConfigError(
                    f"{others} server {settings.name!r} with another configuration, "
                    f'which differs in: {", ".join(differs)}; use the same, or give it another "name" in the placement'
                )
            user = HostUser(settings, uuid.uuid4().hex, self._clock)
            is_first = server is None
            if server is None:
                server = HostedServer(settings, user.questions, self._clock, is_shared=self._is_shared)
                self._server = server
            self._users[user.incarnation] = user
            if self._unused is not None:
                self._unused.end()
            server.hooks.join(user.events)
            server.subscribe(self._users.values())
            user.lease.watch(lambda: self._lease_is_over(user), f"mcp-{settings.name}-lease")
        if is_first:
            server.begin_start()
        else:
            server.supervisor.subscriptions_changed()
        return user

    @property
    def _is_shared(self) -> bool:
        return self._on_unused is not None

    @property
    def _supervisor(self) -> Supervisor | None:
        return None if self._server is None else self._server.supervisor

    def report(self) -> bytes:
        """How it is, for all programs of the cluster: no secrets, and nothing of the server's configuration."""
        with self._lock:
            supervisor, users = self._supervisor, list(self._users.values())
        condition = None if supervisor is None else supervisor.condition
        report = HostReport(
            server=None if supervisor is None else supervisor.name,
            version=__version__,
            python=platform.python_version(),
            node=socket.gethostname(),
            node_id=self._node_id,
            pid=os.getpid(),
            server_pid=None if condition is None else condition.pid,
            state="waiting" if supervisor is None else supervisor.state.value,
            error=None if condition is None else condition.last_error,
            generation=0 if condition is None else condition.generation,
            restarts=0 if condition is None else condition.restarts,
            seconds=self._clock.monotonic() - self._began,
            shared=self._is_shared,
            users=[user.report() for user in users],
            resources=self._resources,
        )
        return encode(report)

    def is_there(self) -> bool:
        """Whether this process still answers."""
        return True

    def poll(self, incarnation: str, acknowledged: int) -> bytes:
        """The events after the one with the number `acknowledged`; waits for them for a while.

        Nothing if the poll is for another incarnation, or comes too late.
        """
        user = self._users.get(incarnation)
        if user is None or not user.lease.renew():
            return b""
        events = user.events.fetch(acknowledged, user.lease.seconds / _POLLS_PER_LEASE)
        if user.lease.is_over:
            return b""
        return encode(msgspec.structs.replace(events, clock=self._clock.monotonic()))

    def _lease_is_over(self, user: HostUser) -> None:
        """The driver may have the server somewhere else by now, or is gone."""
        if not self._is_shared:
            self.stop()
            self._on_over()
        elif self._part(user) and self._on_unused is not None:
            self._on_unused()

    def leave(self, incarnation: str) -> bool:
        """A driver does not need the server any more.

        True if it was the last one: then the server has been stopped, and this host is of no use any more.
        """
        user = self._users.get(incarnation)
        if user is None:
            return self._stopped
        return self._part(user)

    def _part(self, user: HostUser) -> bool:
        """A user is gone. True if it was the last one."""
        with self._lock:
            is_there = self._users.pop(user.incarnation, None) is not None
            is_last = is_there and not self._users and not self._stopped
            self._stopped = self._stopped or is_last
            server = self._server
        if not is_there or server is None:
            return is_last
        server.hooks.part(user.events)
        for call in user.calls():
            server.supervisor.call_queue.cancel(call, CallCancelled("its program has left the server"))
        user.close()
        if is_last:
            self.stop()
            # In case that the one who has left does not end this host.
            self._expect_user()
        else:
            self._subscribe(server)
        return is_last

    # Calls.

    def call(self, data: bytes) -> bytes:
        """Make one call, and wait for its end."""
        asked = msgspec.msgpack.decode(data, type=AskedCall)
        server, user = self._server, self._users.get(asked.incarnation)
        if server is None or user is None or user.lease.is_stale(asked.sent):
            return encode(Reply(is_late=True))
        try:
            return self._call(server, user, asked)
        except Exception as error:  # noqa: BLE001 - see the module
            failure = InvalidResponse(f"internal error: {exception_text(error)}", delivery="unknown")
            return encode(Reply(error=WireError.of(failure)))

    def _call(self, server: HostedServer, user: HostUser, asked: AskedCall) -> bytes:
        supervisor = server.supervisor
        message = orjson.loads(asked.frame)
        reported = 0

        def progressed(params: Mapping[str, Any]) -> None:
            nonlocal reported
            reported += user.events.add(Progressed(asked.number, dict(params)))

        connection = supervisor.call_queue.ready
        call = HostRequest(
            supervisor.next_id(),
            message["method"],
            message.get("params"),
            self._clock.monotonic(),
            asked.timeout if asked.capabilities is None else _RELAYED_SECONDS,
            repeatable=asked.repeatable,
            on_progress=progressed if asked.progress else None,
            max_timeout=asked.max_timeout,
            tool=asked.tool,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            route=supervisor.call_queue,
            owner=CallOwner(user, asked, user.key if self._is_shared else None),
            problem=lambda: _problem(server, user, asked),
        )
        early = user.enter(asked.number, call)
        try:
            if early is not None:
                call.finish(error=CallCancelled(early))
            else:
                call.perform(self._clock)
        finally:
            user.leave(asked.number)
        error = call.error
        if error is None:
            return encode(Reply(result=call.take_raw(), progress=reported))
        if (isinstance(error, NotApproved) or user.lease.is_over) and error.delivery == "not_sent":
            return encode(Reply(progress=reported, is_late=user.lease.is_over))
        if user.lease.is_over:
            error = _lost(f"{message['method']}: its host had not heard of this program for too long")
        elif isinstance(error, NotApproved):
            error = _lost(f"the server was lost during {message['method']}, which was not repeated: {error.message}")
        if isinstance(error, UrlElicitationRequired):
            for elicitation in error.elicitations:
                server.requests.note_url(elicitation.get("elicitationId"))
        return encode(Reply(error=WireError.of(error), progress=reported))

    def cancel(self, incarnation: str, number: int, reason: str, expired: bool) -> None:
        """The driver gives a call up, perhaps because its deadline has passed."""
        supervisor, user = self._supervisor, self._users.get(incarnation)
        call = None if user is None else user.to_cancel(number, reason)
        if call is None or supervisor is None:
            return
        if expired:
            # So the supervisor looks whether the server hangs.
            supervisor.call_queue.expire(call)
        else:
            supervisor.call_queue.cancel(call, CallCancelled(reason))

    # What else the driver says.

    def answer(self, incarnation: str, data: bytes) -> None:
        """The application's answer to a request of the server."""
        user = self._users.get(incarnation)
        if user is not None:
            user.questions.answered(msgspec.msgpack.decode(data, type=Answer))

    def notify(self, incarnation: str, method: str, data: bytes) -> None:
        supervisor = self._supervisor
        connection = None if supervisor is None else supervisor.call_queue.ready
        if incarnation in self._users and connection is not None:
            connection.notify(method, orjson.loads(data))

    def subscribe(self, incarnation: str, resources: tuple[str, ...], log_level: str | None) -> None:
        """The driver wants to be told of these resources and log messages."""
        user, server = self._users.get(incarnation), self._server
        if user is not None and server is not None:
            user.resources, user.log_level = tuple(resources), log_level
            self._subscribe(server)

    def _subscribe(self, server: HostedServer) -> None:
        with self._lock:
            server.subscribe(self._users.values())
        server.supervisor.subscriptions_changed()

    def replace(self, incarnation: str) -> bool | None:
        """Have a fresh process take the server's place."""
        server = self._server
        if incarnation not in self._users or server is None or server.supervisor.call_queue.ready is None:
            return None
        return server.supervisor.replace_now(server.settings.drain_timeout)

    def relist(self, incarnation: str) -> None:
        """Another replica has told that its tools changed."""
        if incarnation in self._users and self._supervisor is not None:
            self._supervisor.maintain(Maintenance.list_tools)

    def wake(self, incarnation: str) -> None:
        """Start a server that is at rest."""
        if incarnation in self._users and self._supervisor is not None:
            self._supervisor.wake()

    def stop(self) -> None:
        """Stop the server, and return when nothing of it is left."""
        with self._lock:
            self._stopped = True
            server = self._server
        if server is not None:
            server.stop()
        with self._lock:
            users, unused = list(self._users.values()), self._unused
        for user in users:
            user.close()
        if unused is not None:
            unused.end()


def _lost(message: str) -> ServerCrashed:
    """The server may have acted on the call."""
    error = ServerCrashed(message)
    error.delivery = "unknown"
    return error


def _problem(server: HostedServer, user: HostUser, asked: AskedCall) -> MCPError | None:
    """Why a call is not written that is about to be."""
    if asked.start is not None and server.supervisor.condition.generation != asked.start:
        return SessionLost("the server was started again before the call could be written")
    if user.lease.is_over:
        return NotApproved("the lease is over")
    if asked.tool is None or server.hooks.knows(asked.listing, asked.tool):
        return None
    return NotApproved(f"the definition of {asked.tool} has changed")
