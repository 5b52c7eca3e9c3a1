"""One start of a fake server as a channel, over which the engine talks to it as to a process."""

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
    """One generation of a fake server."""

    def __init__(self, state: FakeServerState, listener: ChannelListener, name: str, number: int) -> None:
        """`number` says which start it is, from 1."""
        super().__init__(listener)
        self._state = state
        self._threads = DaemonPool(f"mcp-{name}-fake", _THREADS)
        self.session = FakeSession(state, number, self._threads, self.write, self.end)
        self._ended: Callable[[], None] = lambda: None
        """To be called when the channel of a server that has ended by itself is closed."""
        self._unread: list[Json] | None = None
        """What has come while the server hangs; None while it does not."""
        open_channels.add(self)

    # What the engine calls.

    def send(self, item: Outgoing) -> bool:
        with self._lock:
            # What is sent to a server that has ended is not written.
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

    # What the server does.

    def write(self, line: bytes) -> None:
        """Hand a line to the client, unless the server hangs or has ended."""
        if self._ending is None and self._unread is None:
            self._listener.message_received(line)

    def end(self, ending: Ending) -> None:
        """The server ends by itself."""
        with self._lock:
            if self._ending is not None:
                return
            self._ending = ending
            # A fake clock waits until the engine has closed the channel.
            self._ended = self._state.begin_work()
        self.session.close()
        self._listener.channel_ended()

    def hang(self) -> None:
        """Read nothing and write nothing from now on."""
        with self._lock:
            if self._unread is None:
                self._unread = []

    def resume(self) -> None:
        """Read what has come meanwhile, and go on with calls that hang."""
        with self._lock:
            unread, self._unread = self._unread or [], None
        for message in unread:
            self.session.received(message)
        self.session.resume()
