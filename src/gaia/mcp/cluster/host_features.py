"""On a host: what the application offers to the server, which lives in another process, perhaps on another machine."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gaia.mcp.cluster.wire import Answer, AskedInput, Withdrawn
from gaia.mcp.protocol.messages import INTERNAL_ERROR, Refusal
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.runtime.cancellation import current_scope
from gaia.runtime.locks import Latch, reentrant_lock

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class Questions:
    """The requests of the server that the driver has not answered. Thread-safe."""

    def __init__(self, tell: Callable[[AskedInput | Withdrawn], object]) -> None:
        """`tell` has the driver told."""
        self._tell = tell
        self._numbers = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._open: dict[int, Callable[[Answer], object]] = {}
        """What is told the answer, by the number of the request."""

    def put(
        self, method: str, params: Mapping[str, Any], on_answer: Callable[[Answer], object]
    ) -> Callable[[], object]:
        """Have the driver asked; returns a function that withdraws the request. `on_answer` is called once at most."""
        number = next(self._numbers)
        with self._lock:
            self._open[number] = on_answer
        self._tell(AskedInput(number, method, dict(params)))

        def withdraw() -> None:
            with self._lock:
                is_open = self._open.pop(number, None) is not None
            if is_open:
                self._tell(Withdrawn(number))

        return withdraw

    def ask(self, method: str, params: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Ask the driver, and wait for its answer. Raises `Refusal`. On a callback thread."""
        answered, answers = Latch(), list[Answer]()
        scope = current_scope()
        forget = None if scope is None else scope.on_cancel(answered.open)

        def on_answer(answer: Answer) -> None:
            answers.append(answer)
            answered.open()

        withdraw = self.put(method, params, on_answer)
        try:
            answered.wait(min(timeout, threading.TIMEOUT_MAX))
        finally:
            if forget is not None:
                forget()
            withdraw()
        if not answers:
            raise Refusal(INTERNAL_ERROR, "the answer is not needed any more")
        if answers[0].result is None:
            raise refusal_of(answers[0])
        return answers[0].result

    def answered(self, answer: Answer) -> None:
        with self._lock:
            on_answer = self._open.pop(answer.number, None)
        if on_answer is not None:
            on_answer(answer)

    def close(self) -> None:
        """The driver is gone: refuse what is open."""
        with self._lock:
            numbers = list(self._open)
        for number in numbers:
            self.answered(Answer(number, None, INTERNAL_ERROR, "the program that was asked is gone"))


def refusal_of(answer: Answer) -> Refusal:
    """What an answer without a result says to the server."""
    return Refusal(answer.code or INTERNAL_ERROR, answer.message or "the client could not answer")


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
