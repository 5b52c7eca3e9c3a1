"""A listener that remembers what it was told, and can be waited for."""

import threading
from typing import Any, TypeVar

from gaia.mcp.supervision.events import Event, ServerState, StateChanged
from tests.waiting import PATIENCE

E = TypeVar("E", bound=Event)


class Recorder:
    """Subscribe it to a client or a manager."""

    def __init__(self) -> None:
        self._happened = threading.Condition()
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        with self._happened:
            self.events.append(event)
            self._happened.notify_all()

    def of(self, kind: type[E], /, **fields: Any) -> list[E]:
        """The events so far that are of this kind and have these fields."""
        return [
            event
            for event in list(self.events)
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        ]

    def wait_for(self, kind: type[E], /, **fields: Any) -> E:
        """Wait for such an event, unless there was one already; return the first."""
        with self._happened:
            assert self._happened.wait_for(lambda: self.of(kind, **fields), PATIENCE), self.events
        return self.of(kind, **fields)[0]

    @property
    def states(self) -> list[ServerState]:
        """All states that were entered, in order."""
        return [event.new for event in self.of(StateChanged)]
