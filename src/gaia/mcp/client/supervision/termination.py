"""How a server is lost, and how the rest of it is ended beside the supervisor: that can take seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from gaia.log import get_logger
from gaia.mcp.client.observation.lifecycle_spans import LossReason, Lost
from gaia.mcp.client.rpc.channel import Channel, Ending
from gaia.mcp.errors import MCPError, NeedsAuthorization

__all__ = ["Loss", "Termination", "loss_reason"]

logger = get_logger(__name__)


class Loss(msgspec.Struct, frozen=True):
    """Why and how a connection was lost."""

    error: MCPError | None
    """None: the server ended it."""
    ending: Ending
    was_ready: bool
    wanted: bool
    """Somebody wanted something of the server."""
    hung: bool = False
    """It was ended because it did not answer any more."""

    def described(self, final: Ending) -> Lost:
        """For traces. How the server ended is what was known when it was lost: what we force later says nothing."""
        return Lost(
            loss_reason(self.error, self.ending, hung=self.hung),
            "" if self.error is None else self.error.message,
            self.ending.exit_code,
            self.ending.signal,
            final.stderr_tail or self.ending.stderr_tail,
        )

    @property
    def died_while_opening(self) -> bool:
        """Whether the server ended before it was ready. One that could not even be reached has not ended."""
        return not self.was_ready and self.error is None and self.ending.cause is None

    @property
    def unauthorized(self) -> bool:
        """Whether the server wants a login that there is not, or not any more."""
        return self.ending.unauthorized or isinstance(self.error, NeedsAuthorization)

    def reason(self, stderr_tail: str = "") -> str:
        """For people. `stderr_tail` may be longer than what was known when the connection was lost."""
        if self.error is None:
            ending = msgspec.structs.replace(self.ending, stderr_tail=stderr_tail or self.ending.stderr_tail)
            return f"the server {ending}"
        if stderr_tail and not self.was_ready:
            return f"{self.error.message}; the server last wrote on stderr:\n{stderr_tail}"
        return self.error.message


def loss_reason(error: MCPError | None, ending: Ending, *, hung: bool) -> LossReason:
    """The word for how a connection was lost: `error` says why we gave it up, None that the server ended it."""
    if hung:
        return "hung"
    if error is not None:
        return "handshake_failed"
    if ending.signal is not None:
        return "signal"
    if ending.exit_code is not None:
        return "exited" if ending.clean else "exit_code"
    if ending.renewable:
        return "session_lost"
    if ending.cause is not None:
        return "unreachable"
    return "output_closed"


class Termination:
    """The closing of one channel in a thread of its own."""

    def __init__(
        self, server: str, channel: Channel, loss: Loss, grace: float, on_closed: Callable[[Ending], None]
    ) -> None:
        """Begin to close. `on_closed` is called once, when it is done, with how the server ended."""
        self.loss = loss
        self._server = server
        self._channel = channel
        self._grace = grace
        self._on_closed = on_closed
        self._thread = threading.Thread(target=self._close, name=f"mcp-{server}-closer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads. Late timeouts are better than a server that is never ended.
            self._close()

    def wait(self) -> None:
        """Return when the channel is closed."""
        if self._thread.ident is not None:
            self._thread.join()

    def _close(self) -> None:
        ending = Ending()
        try:
            ending = self._channel.close(self._grace)
        except Exception as error:  # noqa: BLE001 - a mistake of ours: the supervisor waits for the news, good or bad
            logger.error("close_failed", server=self._server, error=repr(error))
        finally:
            self._on_closed(ending)
