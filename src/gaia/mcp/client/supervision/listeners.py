"""Who is told of events, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.events import Event, Listener

__all__ = ["Listeners"]


class _Subscription:
    """One listener and its lane; a listener may subscribe more than once."""

    def __init__(self, listener: Listener, lane: Lane) -> None:
        self._listener = listener
        self._lane = lane
        self._ended = False

    def post(self, event: Event) -> None:
        self._lane.post(lambda: self._deliver(event))

    def end(self) -> None:
        self._ended = True

    def _deliver(self, event: Event) -> None:
        # Looked at here, because events may wait in the lane for long.
        if not self._ended:
            self._listener(event)


class Listeners:
    """Thread-safe. Each listener gets events in order, one at a time, on a callback thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns the writing of `_subscriptions`, which is replaced as a whole, so that `publish` takes no lock."""
        self._subscriptions: tuple[_Subscription, ...] = ()

    def subscribe(self, listener: Listener, lane: Lane) -> Callable[[], None]:
        """Tell `listener` of all events from now on; returns a function that ends it, even for those under way."""
        subscription = _Subscription(listener, lane)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

        def unsubscribe() -> None:
            subscription.end()
            with self._lock:
                self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)

        return unsubscribe

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.post(event)
