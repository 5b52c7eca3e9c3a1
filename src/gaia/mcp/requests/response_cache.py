"""Answers that a server of the stateless era allows the client to use again (2026-07-28, "Caching").

One cache belongs to one client, and so to one authorization: answers of the scope "private" need no further check. The
cache stores answers as JSON, which has a definite length and is faster to copy than objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

from gaia.mcp.supervision.events import Event, PromptsChanged, ResourcesChanged, ResourceUpdated, StateChanged
from gaia.runtime.clock import Clock
from gaia.runtime.locks import reentrant_lock

CACHEABLE = frozenset(
    ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
)
_MAX_ANSWERS = 256
_MAX_BYTES = 16 * 1024 * 1024
"""All answers together. An answer that is longer by itself is not kept."""

Json = dict[str, Any]
Key = tuple[str, bytes]


class ResponseCache:
    """Thread-safe. Each page of a list is a separate entry with its own lifetime."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = reentrant_lock()
        """Owns everything below. Reentrant, because a signal handler may disconnect the client meanwhile."""
        self._answers: OrderedDict[Key, tuple[float, bytes]] = OrderedDict()
        """By request: until when the answer is fresh (a reading of the clock), and the answer. The last used is
        last."""
        self._size = 0
        self._epoch = 0
        """How often answers were forgotten. The answer to a request that was made before that is not kept."""

    def get(self, method: str, params: Json | None) -> Json | None:
        key = _key(method, params)
        if key is None:
            return None
        with self._lock:
            fresh_until, encoded = self._answers.get(key, (0.0, None))
            if encoded is None or self._clock.monotonic() >= fresh_until:
                return None
            self._answers.move_to_end(key)
        answer: Json = orjson.loads(encoded)
        return answer

    def keeper(self, method: str, params: Json | None) -> Callable[[Json], None]:
        """Call this before the request is made; give the answer to the function that it returns."""
        key, epoch = _key(method, params), self._epoch

        def keep(answer: Json) -> None:
            milliseconds = answer.get("ttlMs", 0)
            if key is None or isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
                return
            if not milliseconds > 0:
                return
            try:
                encoded = orjson.dumps(answer)
            except TypeError:
                # Numbers of more than 64 bits, or half of a surrogate pair.
                return
            if len(encoded) + len(key[1]) > _MAX_BYTES:
                return
            with self._lock:
                if self._epoch == epoch:
                    self._drop(key)
                    self._answers[key] = (self._clock.monotonic() + milliseconds / 1000, encoded)
                    self._size += len(encoded) + len(key[1])
                    while self._size > _MAX_BYTES or len(self._answers) > _MAX_ANSWERS:
                        self._drop(next(iter(self._answers)))

        return keep

    def _drop(self, key: Key) -> None:
        _, encoded = self._answers.pop(key, (0.0, None))
        if encoded is not None:
            self._size -= len(encoded) + len(key[1])

    def forget(self, *methods: str) -> bool:
        """Forget the answers to these methods, or all answers. True if there were any."""
        return self._forget(lambda key: not methods or key[0] in methods)

    def happened(self, event: Event) -> None:
        match event:
            case StateChanged():
                self.forget()
            case PromptsChanged():
                self.forget("prompts/list")
            case ResourcesChanged():
                self.forget("resources/list", "resources/templates/list")
            case ResourceUpdated(uri=uri):
                # The URI may be a part of the resource that was read, or contain it.
                self._forget(lambda key: key[0] == "resources/read" and _related(orjson.loads(key[1]).get("uri"), uri))

    def _forget(self, is_meant: Callable[[Key], bool]) -> bool:
        with self._lock:
            self._epoch += 1
            meant = [key for key in self._answers if is_meant(key)]
            for key in meant:
                self._drop(key)
        return bool(meant)


def _key(method: str, params: Json | None) -> Key | None:
    if method not in CACHEABLE:
        return None
    affecting = {name: value for name, value in (params or {}).items() if name != "_meta"}
    try:
        return method, orjson.dumps(affecting, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None


def _related(one: Any, other: str) -> bool:
    return isinstance(one, str) and (one.startswith(other) or other.startswith(one))
