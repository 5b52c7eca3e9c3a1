"""One host that was greeted: it is asked for events, one request after the other, and its silence is noticed."""

from __future__ import annotations

import time
from typing import Any, Protocol

from gaia.mcp.cluster.cluster_loop import Alarm, ClusterLoop
from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.cluster.link import HostLink, OnAnswer
from gaia.mcp.cluster.wire import Greeting, HostEvent, StateReached, decode_events


class HostWatcher(Protocol):
    """What is told of a host; on the loop's thread."""

    def happened(self, host: PlacedHost, event: HostEvent) -> None:
        """The host tells something, in its order."""

    def host_silent(self, host: PlacedHost) -> None:
        """The host has not answered within its lease."""

    def host_answers(self, host: PlacedHost) -> None:
        """The host, which was silent, answers again."""

    def host_lost(self, incarnation: str, failure: BaseException) -> None:
        """The engine says that the host is lost."""


class PlacedHost:
    """One incarnation of a host, as the driver knows it. The thread of the loop changes it; `tell` is for any thread.

    It may be lost, and turn out later to have been out of reach only: then it is greeted again.
    """

    def __init__(
        self, link: HostLink, greeting: Greeting, lease: float, loop: ClusterLoop, watcher: HostWatcher
    ) -> None:
        """`lease` is in seconds."""
        self.link = link
        self.incarnation = greeting.incarnation
        self.node = greeting.node
        self.state: StateReached | None = None
        """What it has told last of its server."""
        self.listing = 0
        """The number of its last listing of tools that the client has taken over."""
        self.is_present = False
        """It was greeted, and is neither lost nor given up since then."""
        self.is_silent = False
        """It has not answered within its lease."""
        self._lease = lease
        self._loop = loop
        self._watcher = watcher
        self._clock = HostClock()
        self._acknowledged = 0
        """The number of the last event that has come."""
        self._polled_at = 0.0
        """When it was asked for events last."""
        self._listener: Alarm | None = None
        """When to look whether it has answered."""

    @property
    def silence(self) -> str | None:
        """What is known of it if it does not answer; None if it does."""
        if not self.is_silent:
            return None
        return f"its host on node {self.node} has not answered for {self._lease:g} s"

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        """Send a message that is for this incarnation alone."""
        self.link.tell(method, self.incarnation, *arguments, on_answer=on_answer)

    def gate(self, state: StateReached) -> Gate:
        """For calls to its server, as long as it is the one that has reached this state."""
        return Gate(self.link, self.incarnation, self._clock, state.generation, self.listing)

    def greeted(self, greeting: Greeting, now: float) -> None:
        """It has answered a greeting at `now`: ask it for events from now on."""
        self.is_present, self.is_silent = True, False
        self._clock.heard(greeting.clock, now)
        self._poll()
        self._listen()

    def let_go(self) -> None:
        """It is lost, or about to be ended: ignore what it tells from now on."""
        self.is_present = self.is_silent = False

    def _poll(self) -> None:
        if not self.is_present:
            return
        self._polled_at = time.monotonic()
        self.link.poll(self.incarnation, self._acknowledged, self._loop.receiver(self._polled))

    def _polled(self, answer: Any, failure: BaseException | None, now: float) -> None:
        if not self.is_present:
            return
        if failure is not None or not answer:
            failure = failure or RuntimeError("another process took its place")
            self._watcher.host_lost(self.incarnation, failure)
            return
        sent = decode_events(answer)
        self._clock.heard(sent.clock, now)
        was_silent, self.is_silent = self.is_silent, False
        if was_silent:
            self._watcher.host_answers(self)
        try:
            for number, event in enumerate(sent.events, sent.first):
                if number > self._acknowledged:
                    self._acknowledged = number
                    if isinstance(event, StateReached):
                        self.state = event
                    self._watcher.happened(self, event)
        finally:
            self._poll()
            if was_silent:
                self._listen()

    def _listen(self) -> None:
        """Notice it if no answer comes in time: the host has stopped its server, or is about to."""
        if not self.is_present or self.is_silent:
            return
        left = self._polled_at + self._lease - time.monotonic()
        if left > 0:
            if self._listener is not None:
                self._listener.cancel()
            self._listener = self._loop.alarm(left, self._listen)
            return
        self.is_silent = True
        self._watcher.host_silent(self)
