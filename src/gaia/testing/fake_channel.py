"""`FakeChannel`: one start of a fake server as a channel, which the engine uses like a process."""

from __future__ import annotations

import json
from collections.abc import Callable

from gaia.mcp.rpc.channel import ChannelListener, Ending, Outgoing
from gaia.mcp.transports.base import open_channels
from gaia.runtime.threads import DaemonPool
from gaia.testing.fake_session import FakeSession
from gaia.testing.fake_state import FakeServerState
from gaia.testing.fake_tool import Json
from gaia.testing.in_memory import InMemoryChannel

_THREADS = 32
_JOIN_SECONDS = 2.0


class FakeChannel(InMemoryChannel):
    def __init__(self, state: FakeServerState, listener: ChannelListener, name: str, number: int) -> None:
        super().__init__(listener)
        self._state = state
        self._threads = DaemonPool(f"mcp-{name}-fake", _THREADS)
        self.session = FakeSession(state, number, self._threads, self.write, self.end)
        self._ended: Callable[[], None] = lambda: None
        """Called when the channel is closed, if the server ended by itself."""
        self._unread: list[Json] | None = None
        """Messages that have arrived while the server hangs; None while it does not hang."""
        open_channels.add(self)

    # For the engine.

    def send(self, item: Outgoing) -> bool:
        with self._lock:
            # Messages to an ended server are not written.
            if self._ending is not None or self.is_forked or not item.begin_write():
                return True
            message: Json = json.loads(item.frame)
            if self._unread is not None:
                self._unread.append(message)
                return True
        self.session.received(message)
        return True

    def stop_writing(self) -> bool:
        return self._ending is not None

    def close(self, grace: float) -> Ending:  # noqa: ARG002 - it leaves at once
        with self._lock:
            ending = self._ending = self._ending or Ending(exit_code=0)
        self.session.close()
        self._threads.close(_JOIN_SECONDS)
        open_channels.discard(self)
        self._ended()
        return ending

    def is_alive(self) -> bool:
        return self._ending is None and not self.is_forked

    # For the server.

    def write(self, line: bytes) -> None:
        if self._ending is None and self._unread is None:
            self._listener.message_received(line)

    def end(self, ending: Ending) -> None:
        with self._lock:
            if self._ending is not None:
                return
            self._ending = ending
            # A fake clock waits until the engine has closed the channel.
            self._ended = self._state.begin_work()
        self.session.close()
        self._listener.channel_ended()

    def hang(self) -> None:
        with self._lock:
            if self._unread is None:
                self._unread = []

    def resume(self) -> None:
        with self._lock:
            unread, self._unread = self._unread or [], None
        for message in unread:
            self.session.received(message)
        self.session.resume()
