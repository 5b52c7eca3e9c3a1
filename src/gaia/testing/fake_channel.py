"""A fake server as a transport: each start is a channel, over which the engine talks to it as to a process."""

from __future__ import annotations

import json
from collections.abc import Callable

from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import open_channels
from gaia.mcp.transports.standalone import StandaloneTransport
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import DaemonPool
from gaia.testing.fake_session import FakeSession
from gaia.testing.fake_tool import Json
from gaia.testing.offering import Offering

_THREADS = 32
_MAX_PENDING = 1024
_JOIN_SECONDS = 2.0


class FakeChannel:
    """One generation of a fake server. Implements `Channel`; thread-safe."""

    pid: int | None = None

    def __init__(self, offering: Offering, listener: ChannelListener, name: str, number: int) -> None:
        """`number` says which start it is, from 1."""
        self.is_forked = False
        self._listener = listener
        self._offering = offering
        self._threads = DaemonPool(f"mcp-{name}-fake", _THREADS)
        self.session = FakeSession(offering, number, self._threads, self.write, self.end)
        self._lock = reentrant_lock()
        """Owns the rest. Not held while a message is handed over."""
        self._ended: Callable[[], None] = lambda: None
        """To be called when the channel of a server that has ended by itself is closed."""
        self._ending: Ending | None = None
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

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        """The bytes are the same in all revisions."""

    def redact(self, text: str) -> str:
        return text

    def ending(self, wait: float) -> Ending | None:  # noqa: ARG002 - it ends at once, or not at all
        return self._ending

    def memory(self) -> int | None:
        return None

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

    def after_fork(self) -> None:
        self.is_forked = True

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
            self._ended = self._offering.begin_work()
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


class FakeTransport(StandaloneTransport):
    """Starts a fake server for one client, again and again."""

    network_transport = "pipe"

    def __init__(self, name: str, timeout: float, start: Callable[[ChannelListener, str], FakeChannel]) -> None:
        """`start` makes a new channel; it may raise `StartFailed`."""
        super().__init__(timeout, _MAX_PENDING)
        self._name = name
        self._start = start

    @property
    def _label(self) -> str:
        return self._name

    @property
    def channel(self) -> FakeChannel | None:
        """The channel that calls go to, as long as its server runs."""
        channel = self._channel
        return channel if isinstance(channel, FakeChannel) and channel.is_alive() else None

    def present(self, channel: Channel) -> None:
        if isinstance(channel, FakeChannel):
            self._channel = channel

    def open(self, listener: ChannelListener, name: str) -> FakeChannel:
        channel = self._start(listener, name)
        if self.channel is None:
            self._channel = channel
        return channel
