"""What is seen of a request that a server makes of us: its SERVER span, and its duration in the metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from gaia.mcp.client.observation.request_spans import Executor, Observer
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics, spans

__all__ = ["Served", "begin_serving"]


class Served:
    """Follows one request of the server, from its arrival to the answer. `answered` is called once, by any thread."""

    def __init__(self, observer: Observer, span: Span, method: str, executor: Executor | None) -> None:
        self.span = span
        self._counted = {names.METHOD_NAME: method, **observer.common}
        self._executor = executor
        self._started = time.perf_counter()

    def current(self) -> AbstractContextManager[Span]:
        """Its span is the current one meanwhile: what is begun for the answer belongs to it."""
        return trace.use_span(self.span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def answered(self, code: int | None = None, error_type: str | None = None) -> None:
        """The answer has been sent: a result, or the error `code`. `error_type` is for what went wrong without one."""
        outcome: dict[str, Any] = {}
        if code is not None:
            outcome[names.STATUS_CODE] = str(code)
            if code not in names.CALLERS_FAULT:
                outcome[names.ERROR_TYPE] = error_type or str(code)
        elif error_type is not None:
            outcome[names.ERROR_TYPE] = error_type
        metrics.instruments.served_duration.record(time.perf_counter() - self._started, {**self._counted, **outcome})
        span = self.span
        if not span.is_recording():
            return
        span.set_attributes(outcome)
        if names.ERROR_TYPE in outcome:
            span.set_status(Status(StatusCode.ERROR))
        now = time.time_ns()
        if self._executor is None:
            span.end(now)
        else:
            self._executor(lambda: span.end(now))


def begin_serving(
    observer: Observer,
    method: str,
    params: Mapping[str, Any] | None,
    request_id: object,
    executor: Executor | None = None,
) -> Served:
    """A request has come. Its parent is the context in its ``_meta``; without one it begins a trace.

    `run` runs what may take the application's time in the end; None: the thread that reports the answer.
    """
    attributes: dict[str, Any] = {names.METHOD_NAME: method, **observer.common}
    if request_id is not None:
        attributes[names.REQUEST_ID] = str(request_id)
    # Whatever is current in the thread that reads has nothing to do with this request.
    token = contexts.attach(Context())
    try:
        span = spans.start_server_span(method, attributes, (params or {}).get("_meta"))
    finally:
        contexts.detach(token)
    return Served(observer, span, method, executor)
