"""The condition of one server: what anybody may know of it at any time, and who is told when its state changes."""

from __future__ import annotations

from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Noise
from gaia.mcp.client.supervision.call_queue import CallQueue
from gaia.mcp.client.supervision.events import ServerState, StateChanged
from gaia.mcp.client.supervision.generation import Generation
from gaia.mcp.client.supervision.settings import SupervisionHooks

__all__ = ["Condition"]


class Condition:
    """Facts of one server. Only the supervisor's thread changes them; other threads read single values."""

    def __init__(self, server: str, call_queue: CallQueue, hooks: SupervisionHooks, clock: Clock) -> None:
        self.profile: ServerProfile | None = None
        """What the server told about itself in its last handshake."""
        self.generation = 0
        """How often the server has been started."""
        self.restarts = 0
        """How often it was ready again after somebody may have missed it."""
        self.last_error: str | None = None
        self.current: Generation | None = None
        """The server that runs, or that was lost and is being ended. Nothing is started before that is done."""
        self._earlier_noise = Noise()
        """Of all generations before the current one."""
        self._server = server
        self._call_queue = call_queue
        self._hooks = hooks
        self._clock = clock
        self._down_since: float | None = None
        """Since when somebody may have missed the server; a reading of the clock."""

    @property
    def state(self) -> ServerState:
        return self._call_queue.state

    @property
    def known(self) -> bool:
        """Whether the server was ever ready."""
        return self.profile is not None

    @property
    def pid(self) -> int | None:
        current = self.current
        return None if current is None else current.pid

    @property
    def uptime(self) -> float | None:
        """Seconds; None while the server is not ready."""
        current = self.current
        since = None if current is None else current.ready_since
        return None if since is None else self._clock.monotonic() - since

    @property
    def noise(self) -> Noise:
        """Over all generations."""
        current = self.current
        return self._earlier_noise if current is None else self._earlier_noise.plus(current.connection.noise)

    # For the supervisor.

    def move_to(self, new: ServerState, reason: str | None = None) -> None:
        """Change the state, and tell the client."""
        old = self._call_queue.move_to(new, reason)
        if old is not new:
            self._hooks.happened(StateChanged(self._server, old, new, self.generation, reason))

    def gone(self) -> None:
        """The current generation has ended completely."""
        generation, self.current = self.current, None
        if generation is not None:
            self._earlier_noise = self._earlier_noise.plus(generation.connection.noise)

    def missed(self) -> None:
        """The server is not there for those who want it. What they have missed already counts too."""
        if self._down_since is None:
            self._down_since = self._clock.monotonic()

    def not_missed(self) -> None:
        """Nobody has missed the server until now."""
        self._down_since = None

    def downtime(self, now: float) -> float | None:
        """For how long the server was missed, in seconds; None if it was not."""
        return None if self._down_since is None else now - self._down_since

    def recovered(self) -> None:
        """It was missed, and is ready again."""
        self.restarts += 1
        self.not_missed()
