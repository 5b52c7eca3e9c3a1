"""On a host: what the application offers to the server, which lives in another process, perhaps on another machine."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gaia.cancellation import current_scope
from gaia.locks import Latch, reentrant_lock
from gaia.mcp.client.cluster.wire import Answer, AskedInput, Withdrawn
from gaia.mcp.client.protocol.messages import INTERNAL_ERROR, Refusal
from gaia.mcp.client.supervision.client_features import ClientFeatures

__all__ = ["HostFeatures", "Questions"]

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class Questions:
    """The requests of the server that the driver has not answered. Thread-safe."""

    def __init__(self, tell: Callable[[AskedInput | Withdrawn], object]) -> None:
        """`tell` has the driver told."""
        self._tell = tell
        self._numbers = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._open: dict[int, tuple[Latch, list[Answer]]] = {}

    def ask(self, method: str, params: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Ask the driver, and wait for its answer. Raises `Refusal`. On a callback thread."""
        number, answered, answers = next(self._numbers), Latch(), list[Answer]()
        scope = current_scope()
        forget = None if scope is None else scope.on_cancel(answered.open)
        with self._lock:
            self._open[number] = (answered, answers)
        try:
            self._tell(AskedInput(number, method, dict(params)))
            answered.wait(min(timeout, threading.TIMEOUT_MAX))
        finally:
            if forget is not None:
                forget()
            with self._lock:
                del self._open[number]
        if not answers:
            self._tell(Withdrawn(number))
            raise Refusal(INTERNAL_ERROR, "the answer is not needed any more")
        answer = answers[0]
        if answer.result is None:
            raise Refusal(answer.code or INTERNAL_ERROR, answer.message or "the client could not answer")
        return answer.result

    def answered(self, answer: Answer) -> None:
        with self._lock:
            found = self._open.get(answer.number)
        if found is not None:
            found[1].append(answer)
            found[0].open()


class HostFeatures(ClientFeatures, frozen=True, kw_only=True):
    """Declares what the driver has declared, and has the driver answer."""

    declared: Mapping[str, Any] = MappingProxyType({})
    timeout: float = 600.0
    """Seconds that the driver has for an answer."""
    questions: Questions | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        return dict(self.declared)

    def offers(self, method: str) -> bool:
        return _CAPABILITIES.get(method) in self.declared

    def answers_at_once(self, method: str) -> bool:  # noqa: ARG002 - the driver always has to be asked
        return False

    def answer(self, server: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - of the base
        assert self.questions is not None, "it is given"
        return self.questions.ask(method, params, self.timeout)
