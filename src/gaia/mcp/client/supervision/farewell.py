"""Ends a lost server beside the worker, because a server that does not want to end takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.log import get_logger
from gaia.mcp.client.rpc.channel import Channel, Ending

__all__ = ["Farewell"]

logger = get_logger(__name__)


class Farewell:
    """The closing of one channel in a thread of its own."""

    def __init__(self, server: str, channel: Channel, grace: float, on_closed: Callable[[Ending], None]) -> None:
        """Begin to close. `on_closed` is called once, when it is done, with how the server ended."""
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
        except Exception as error:  # noqa: BLE001 - a mistake of ours: the worker waits for the news, good or bad
            logger.error("close_failed", server=self._server, error=repr(error))
        finally:
            self._on_closed(ending)
