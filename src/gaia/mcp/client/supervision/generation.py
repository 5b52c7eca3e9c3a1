"""One generation: a server that was started, from the opening of its channel to the end of all that it started."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from gaia.log import mask_secrets_of
from gaia.mcp.client.observation.request_spans import Executor, Observer
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Channel, Ending
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection, ConnectionState
from gaia.mcp.client.supervision.mailbox import Ended, Letter
from gaia.mcp.client.supervision.maintenance import Maintenance
from gaia.mcp.client.supervision.notifications import Notifications
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.termination import Loss, Termination
from gaia.mcp.client.supervision.timers import Waiting
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.errors import MCPError

__all__ = ["Generation", "Generations"]

_GRACE_SECONDS = 2.0
"""How long a server that we stop may take to leave after the end of its input."""

_EXIT_REPORT_SECONDS = 0.2
"""After the end of a server's output its exit status follows at once, unless it only closed its output."""


class Generation:
    """A server that was started, and our connection to it. Lost once, ended once, never revived.

    Only the supervisor's thread changes it; other threads read `connection`, `pid` and `ready_since`.
    """

    def __init__(self, connection: Connection, channel: Channel, notifications: Notifications) -> None:
        self.connection = connection
        self.notifications = notifications
        self.maintenance: Maintenance | None = None
        """From the first message until the server is lost."""
        self.ready_since: float | None = None
        """A reading of the clock; None before the server is ready and after it is lost."""
        self._channel = channel
        self._termination: Termination | None = None
        """From the loss on."""

    @property
    def pid(self) -> int | None:
        """Of the server's process, if it has one here."""
        return self._channel.pid

    def ready(self, now: float, profile: ServerProfile, tools: list[Any]) -> float:
        """The server has introduced itself and listed `tools`; returns when to have `maintenance` tick."""
        assert self.maintenance is not None, "it has not been lost"
        self.connection.move_to(ConnectionState.READY)
        self.ready_since = now
        return self.maintenance.begin(profile, tools)

    def lose(self, error: MCPError | None) -> Ending:
        """Care for it no more. Returns how it ended; nothing is known of that if `error` made us give it up."""
        self.ready_since = None
        self.maintenance = None
        # An exit that we force, later, says nothing about the server.
        return (self._channel.ending(_EXIT_REPORT_SECONDS) if error is None else None) or Ending()

    def end(self, loss: Loss, on_closed: Callable[[Ending], None]) -> None:
        """End what is left of a lost server, beside the supervisor. `on_closed` is called once, when that is done."""
        grace = 0.0 if loss.hung else _GRACE_SECONDS
        self._termination = Termination(self.connection.name, self._channel, loss, grace, on_closed)

    @property
    def loss(self) -> Loss:
        """How it was lost."""
        assert self._termination is not None, "it was lost"
        return self._termination.loss

    def stop(self) -> Ending:
        """Wait until all of it has ended, and say how it did if nobody was told before."""
        if self._termination is None:
            return self._channel.close(_GRACE_SECONDS)
        self._termination.wait()
        return Ending()


class Generations:
    """Starts one server again and again, each time with a connection of its own. Belongs to the supervisor's thread."""

    def __init__(
        self,
        server: str,
        transport: ChannelTransport,
        server_requests: ServerRequests,
        clock: Clock,
        observer: Observer,
        executor: Executor,
        mailbox: queue.SimpleQueue[Letter],
        max_pending: int,
        watch: Callable[[Waiting], None],
        repeat: Callable[[Call], bool],
    ) -> None:
        """What the channel's threads have to say is put into the `mailbox`.

        ``watch(question)`` enforces the deadline of what the server asks; `repeat` may take over a call whose answer
        was lost. The channel's threads call both.
        """
        self._server = server
        self._transport = transport
        self._server_requests = server_requests
        self._clock = clock
        self._observer = observer
        self._executor = executor
        self._mailbox = mailbox
        self._max_pending = max_pending
        self._watch = watch
        self._repeat = repeat

    def start(self, number: int) -> Generation:
        """Start the server. Raises MCPError if that is not possible."""
        notifications = Notifications(self._mailbox, self._server_requests)
        connection = Connection(
            self._server,
            number,
            self._clock,
            max_pending=self._max_pending,
            on_notification=lambda notification: notifications.received(connection, notification),
            on_ended=lambda ended: self._mailbox.put(Ended(ended)),
            on_request=lambda request: self._server_requests.asked(connection, request, self._watch),
            observer=self._observer.anew(),
            executor=self._executor,
            on_lost=lambda call, _: self._repeat(call),
        )
        channel = self._transport.open(connection, self._server)
        connection.attach(channel)
        self._observer.redact = connection.redact
        self._observer.session_id = lambda: connection.session_id
        mask_secrets_of(channel)
        return Generation(connection, channel, notifications)
