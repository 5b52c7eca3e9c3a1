"""What is to go wrong at which call of a fake server."""

from __future__ import annotations

import dataclasses
from typing import Literal

import msgspec

from gaia.mcp.rpc.channel import Ending


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong at a call."""

    kind: Literal["delay", "junk", "hang", "end"]
    seconds: float = 0.0
    """Of a delay."""
    data: bytes = b""
    """Of junk."""
    ending: Ending = Ending()
    """How the server ends."""
    after: bool = False
    """Whether the server ends when the tool has run, and not before."""


@dataclasses.dataclass
class _Planned:
    fault: Fault
    tool: str | None
    """None: calls of any tool count."""
    first: int
    """The number of the call at which it happens first, from 1."""
    last: int | None
    """The number of the call at which it happens last; None for ever."""
    seen: int = 0

    def counts(self, tool: str) -> bool:
        """Count a call; whether the fault happens at it."""
        if self.tool not in (None, tool):
            return False
        self.seen += 1
        return self.seen >= self.first and not self.is_past(self.seen - 1)

    def is_past(self, seen: int) -> bool:
        return self.last is not None and seen >= self.last


class FaultPlan:
    """The faults that are to come. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def add(self, fault: Fault, tool: str | None, nth: int, times: int | None) -> None:
        """Have `fault` happen at the `nth` call from now on, and at as many calls after it as make `times`.

        Only calls of `tool` count, if it is given. `times` None is for ever.
        """
        for name, value in (("nth", nth), ("times", times)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be 1 or more, got {value!r}")
        self._planned.append(_Planned(fault, tool, nth, None if times is None else nth + times - 1))

    def at_call(self, tool: str) -> list[Fault]:
        """Count a call of `tool`; what happens at it, in the order of adding."""
        faults = [planned.fault for planned in self._planned if planned.counts(tool)]
        self._planned = [planned for planned in self._planned if not planned.is_past(planned.seen)]
        return faults

    def clear(self) -> None:
        self._planned.clear()
