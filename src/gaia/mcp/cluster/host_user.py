"""On a host: one program that uses its server. A detached server has several of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from gaia.mcp.cluster.host_events import HostEvents
from gaia.mcp.cluster.host_features import Questions
from gaia.mcp.cluster.lease import Lease
from gaia.mcp.cluster.report import UserReport
from gaia.mcp.cluster.wire import HostSettings
from gaia.mcp.rpc.call import Call
from gaia.runtime.clock import Clock
from gaia.runtime.locks import reentrant_lock

_MAX_EARLY = 1024
"""Cancellations that came before their calls are remembered for so many."""

_OF_ONE_USER = {"user", "driver", "keep_trying", "known", "resources", "log_level"}
"""Settings that may differ between the users of a server."""


def differing(one: HostSettings, other: HostSettings) -> list[str]:
    """The names of the settings that differ and must not; never their values, which may be secrets."""
    names: list[str] = []
    for name in one.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "launch":
            names += [part for part in mine.__struct_fields__ if getattr(mine, part) != getattr(theirs, part)]
        elif name not in _OF_ONE_USER and mine != theirs:
            names.append(name)
    return names


class HostUser:
    """Its events, its questions and its calls. Thread-safe."""

    def __init__(self, settings: HostSettings, incarnation: str, clock: Clock) -> None:
        self.key = settings.user
        self.driver = settings.driver
        self.incarnation = incarnation
        self.lease = Lease(settings.lease, clock)
        self.events = HostEvents()
        self.questions = Questions(self.events.add)
        self.declared: dict[str, Any] = settings.capabilities
        """What its application offers to the server."""
        self.resources = settings.resources
        self.log_level = settings.log_level
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._calls: dict[int, Call] = {}
        """By the driver's numbers."""
        self._early: OrderedDict[int, str] = OrderedDict()
        """Cancellations of calls that have not come yet, which overtake them now and then."""

    def enter(self, number: int, call: Call) -> str | None:
        """A call is about to be made. Returns why not, if it was cancelled before it came."""
        with self._lock:
            self._calls[number] = call
            return self._early.pop(number, None)

    def leave(self, number: int) -> None:
        """A call has ended."""
        with self._lock:
            del self._calls[number]

    def to_cancel(self, number: int, reason: str) -> Call | None:
        """The call with this number. If it has not come yet, `enter` will return the reason."""
        with self._lock:
            call = self._calls.get(number)
            if call is None:
                self._early[number] = reason
                if len(self._early) > _MAX_EARLY:
                    self._early.popitem(last=False)
            return call

    def calls(self) -> list[Call]:
        """Those under way."""
        with self._lock:
            return list(self._calls.values())

    def close(self) -> None:
        """It is gone: nothing is told it any more, and nothing asked."""
        self.lease.end()
        self.questions.close()
        self.events.close()

    def report(self) -> UserReport:
        return UserReport(driver=self.driver, silent=self.lease.silence, in_flight=len(self.calls()))
