"""`Generation`: one start of a server, from the opening of its channel to the end of all its processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.notifications import ServerNotification
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, Ending
from gaia.mcp.rpc.connection import Connection, ConnectionState, CountedConnection, Recorder
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.exchange_runner import RunExchange
from gaia.mcp.supervision.maintenance import Maintenance, Notifications, open_and_list
from gaia.mcp.supervision.policy import Loss
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.event_loop import EventLoop
from gaia.runtime.log import exception_text, get_logger, mask_secrets_of, traceback_text
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_GRACE_SECONDS = 2.0
_EXIT_REPORT_SECONDS = 0.2
"""After the end of a server's output its exit status follows at once, unless the server only closed its output."""


class Greeting(NamedTuple):
    profile: ServerProfile
    tools: list[Any] | None


class Handlers(NamedTuple):
    """The lifecycle's reactions to its generations. All run on the supervisor's thread."""

    on_greeted: Callable[[Generation], None]
    on_not_greeted: Callable[[Generation, MCPError], None]
    on_not_listed: Callable[[Generation, MCPError], None]
    """The server cannot list its tools. If this raises the error during the greeting, the greeting fails."""
    on_hung: Callable[[Generation], None]
    on_ended: Callable[[Generation], None]
    """The output ended, the process exited, or it closed its input. May be called more than once."""


class Generation:
    """A started server and the connection to it. It is lost once, terminated once, and never started again.

    Only the supervisor's thread changes it; other threads read `connection`, `pid`, `ready_since` and `greeting`.
    """

    def __init__(
        self,
        context: SupervisionContext,
        loop: EventLoop,
        number: int,
        call_queue: CallQueue,
        handlers: Handlers,
    ) -> None:
        """Start the server. Raises MCPError if that fails; `handlers.on_ended` may be called even then.

        `call_queue` may take over a call whose answer was lost.
        """
        self.maintenance: Maintenance | None = None
        """Set from the first message until the server is lost."""
        self.run_exchange: RunExchange | None = None
        self.greeting: Greeting | None = None
        self.ready_since: float | None = None
        """A reading of the clock; None before the server is ready and after it is lost."""
        self.is_terminated = False
        """Whether all its processes have ended after `terminate`."""
        self._closer: EngineThread | None = None
        self.context = context
        self._loop = loop
        self._call_queue = call_queue
        self._handlers = handlers
        deadlines = deadlines_of(context.clock)
        server_requests = context.server_requests
        self.notifications = Notifications(loop, server_requests, self._notified)
        is_counted = context.recycling.max_calls is not None or context.idle_stop is not None
        kind = CountedConnection if is_counted else Connection
        self.connection = connection = kind(
            context.name,
            number,
            context.clock,
            max_pending=context.max_pending,
            on_notification=lambda notification: self.notifications.received(connection, notification),
            on_ended=lambda _: loop.post(lambda: handlers.on_ended(self)),
            on_request=lambda request: server_requests.asked(connection, request, deadlines.watch),
            observer=context.observer.anew(),
            executor=context.executor,
            on_lost=lambda call, _: call_queue.repeat(call),
            post=loop.post,
        )
        recorder = None if context.recorders.new is None else context.recorders.new(context.name)
        self._opened = _open(context, connection, recorder)
        self._channel = self._opened
        try:
            if recorder is not None:
                self._channel = recorder.channel(self._opened)
            connection.channel = self._channel
            mask_secrets_of(self._channel)
        except BaseException:
            # The supervisor never gets this generation, so it could not end the server.
            self._channel.close(0.0)
            raise

    def present(self, observer: Observer) -> None:
        """Let `observer` read the secrets and the session of this connection, because calls now go to it."""
        connection = self.connection
        observer.redact = connection.redact
        observer.session_id = lambda: connection.session_id
        self.context.transport.present(self._opened)

    def greet(self) -> None:
        """Run the handshake and list the tools. The outcome is dropped if the connection is lost before."""
        context, handlers = self.context, self._handlers
        logger.debug("server_started", server=context.name, generation=self.connection.generation, pid=self.pid)
        deadlines, expire = deadlines_of(context.clock), self._call_queue.expire

        def watch(call: Call) -> None:
            deadlines.watch(call, expire)

        def list_failed(error: MCPError) -> None:
            handlers.on_not_listed(self, error)

        def greeted(outcome: tuple[ServerProfile, list[Any] | None]) -> None:
            self.greeting = Greeting(*outcome)
            handlers.on_greeted(self)

        self.run_exchange = run_exchange = RunExchange(
            self.connection, context.clock, context.transport.timeout, self._call_queue.next_id, watch, self._loop.post
        )
        self.maintenance = Maintenance(
            context, run_exchange, self.notifications, self._loop.timers, lambda: handlers.on_hung(self), list_failed
        )

        def begin() -> None:
            if self.maintenance is None:
                return
            run_exchange(
                open_and_list(context.negotiation, context.identity, list_failed),
                greeted,
                lambda error: handlers.on_not_greeted(self, error),
                timeout=context.start_timeout,
                late=f"not ready within its startTimeout of {context.start_timeout:g} s",
            )

        if not context.transport.opens_later(self._opened, lambda: self._loop.post(begin)):
            begin()

    @property
    def pid(self) -> int | None:
        return self._channel.pid

    @property
    def placement(self) -> PlacementStatus | None:
        return self.context.transport.placement(self._opened)

    def memory(self) -> int | None:
        return self._channel.memory()

    def _notified(self, notification: ServerNotification) -> None:
        if self.maintenance is not None:
            self.maintenance.notified(notification)

    def ready(self, now: float, *, has_waited: bool = False) -> None:
        """Calls may be sent from now on. `has_waited`: the server was greeted earlier, as a stand-by."""
        assert self.maintenance is not None, "it has not been lost"
        assert self.greeting is not None, "it was greeted"
        # A placed server has another address at each start.
        self.context.observer.reached(self.context.transport.network)
        self.connection.move_to(ConnectionState.READY)
        self.ready_since = now
        self.maintenance.begin(*self.greeting, has_waited=has_waited)

    def retire(self) -> None:
        assert self.maintenance is not None, "it has not been lost"
        self.maintenance.retire()

    def drain(self) -> None:
        self.connection.move_to(ConnectionState.DRAINING)
        self.ready_since = None

    @property
    def has_ended(self) -> bool:
        """Whether the server is known to have ended, even if no event has reported it yet."""
        return self._channel.ending(0.0) is not None

    @property
    def is_terminating(self) -> bool:
        return self._closer is not None

    def lose(self, error: MCPError | None) -> Ending:
        """End the maintenance. Returns how the server ended; an empty `Ending` if `error` is given."""
        self.ready_since = None
        if self.maintenance is not None:
            self.maintenance.retire()
        self.maintenance = None
        # If the client gave the server up, a later exit that the client forces says nothing about the server.
        return (self._channel.ending(_EXIT_REPORT_SECONDS) if error is None else None) or Ending()

    def terminate(
        self, loss: Loss, on_closed: Callable[[Ending], None], on_silent: Callable[[], None] = lambda: None
    ) -> None:
        """End the processes of a lost server on a separate thread, because that can take seconds.

        At the end, that thread calls `on_closed` once, with how the server ended. It calls `on_silent` before, if it is
        certain earlier that nothing more will be written to the server.
        """
        grace = 0.0 if loss.hung else _GRACE_SECONDS

        def close() -> None:
            ending = Ending()
            try:
                try:
                    if self._channel.stop_writing():
                        self._call_queue.silenced(self.connection)
                        on_silent()
                finally:
                    ending = self._close(grace)
            finally:
                self.is_terminated = True
                # The supervisor waits for this call.
                on_closed(ending)

        closer = EngineThread(close, f"mcp-{self.connection.name}-closer")
        try:
            closer.start()
        except RuntimeError:
            # No more threads. Closing here delays timeouts, but the server must be ended.
            close()
        self._closer = closer

    def stop(self) -> Ending:
        """Wait until the server has ended completely. Returns how, unless `on_closed` of `terminate` reports that."""
        if self._closer is None:
            return self._close(_GRACE_SECONDS)
        if self._closer.ident is not None:
            self._closer.join()
        return Ending()

    def _close(self, grace: float) -> Ending:
        try:
            return self._channel.close(grace)
        except BaseException as error:  # noqa: BLE001 - an internal error must not leave the server running
            text, trace = exception_text(error), traceback_text(error)
            logger.error("close_failed", server=self.connection.name, error=text, exception=trace)
            return self._channel.close(0.0)
        finally:
            self._call_queue.silenced(self.connection)


def _open(context: SupervisionContext, connection: Connection, recorder: Recorder | None) -> Channel:
    if recorder is None:
        return context.transport.open(connection, context.name)
    try:
        return context.transport.open(recorder.listener(connection), context.name)
    except MCPError as error:
        recorder.failed(error)
        raise
