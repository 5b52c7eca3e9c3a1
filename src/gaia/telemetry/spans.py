"""Spans of requests, after the OpenTelemetry conventions for MCP (`gaia.telemetry.attributes` names the revision).

Nothing is recorded unless the application has a tracer. A request carries its span's context in ``_meta``, written by
the application's propagators, baggage included (SEP-414).

Samplers, span processors and propagators are code of the application. Their exceptions are logged, and cost only the
span or its effect. If an engine thread starts a span, they run on the thread ``gaia-spans``. The engine thread waits
for that thread up to a second, and not at all while it is stuck in an earlier span; the span is then not recorded.
"""

from __future__ import annotations

import contextvars
import functools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from gaia.runtime.handover import Handover, on_engine_thread
from gaia.runtime.log import exception_text, get_logger
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics, propagation

Attributes = Mapping[str, AttributeValue]

Executor = Callable[[Callable[[], object]], object]
"""Runs a task that may call the application's span processors: at once, or on another thread."""

P = ParamSpec("P")

_NOTHING: Attributes = {}
running_readers: set[object] = set()
"""Objects that read spans before they end. While there is one, a span receives its attributes at once; otherwise it
receives all of them at its end, which is faster. Any thread adds and discards."""

logger = get_logger(__name__)

_START_SECONDS = 1.0

_tracer = trace.get_tracer("gaia.mcp")

_CLIENT = SpanKind.CLIENT
_NO_SPAN = trace.INVALID_SPAN

_UNKNOWN = object()

_reuse_execute_tool_spans = True


def reuse_execute_tool_spans(reuse: bool) -> None:
    """Whether a tool call inside a span ``execute_tool`` for the same tool adds its attributes to that span (default).

    The conventions advise against a second span, and make it optional. Applies to the whole process.
    """
    global _reuse_execute_tool_spans  # noqa: PLW0603 - one switch for the process, as the tracer is one
    _reuse_execute_tool_spans = reuse


def flush(seconds: float = 2.0) -> bool:
    """Wait until the spans of engine threads have started, at most `seconds`; False if they have not."""
    return _starts.flush(seconds)


_failures: set[type[BaseException]] = set()


def _failed(error: BaseException) -> None:
    if type(error) not in _failures:
        _failures.add(type(error))
        logger.error("tracing_failed", error=exception_text(error))


# Nothing is dropped: engine threads wait for each task, so few tasks can wait.
_starts = Handover("gaia-spans", _failed, lambda _: None)


def _guarded(method: Callable[P, None]) -> Callable[P, None]:
    """Make a method log its exceptions, because a span must not break its request."""

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - code of the application may raise anything
            _failed(error)

    return guarded


def _start_span(
    tracer: Tracer,
    name: str,
    context: Context | None,
    kind: SpanKind,
    attributes: Attributes,
    links: list[Link] | None = None,
) -> Span:
    """Start a span. It records nothing if the application's code fails, or is too slow for an engine thread."""
    try:
        if not on_engine_thread() or _has_no_provider(tracer):
            return tracer.start_span(name, context, kind, attributes, links)
        now, current = time.time_ns(), contextvars.copy_context()
        start = functools.partial(tracer.start_span, name, context, kind, attributes, links, now)
        span = _starts.run(lambda: current.run(start), _START_SECONDS)
        if span is None:
            logger.warning("span_not_started", span=name)
    except Exception as error:  # noqa: BLE001 - code of the application may raise anything
        _failed(error)
        span = None
    return _NO_SPAN if span is None else span


class Outcome(NamedTuple):
    error_type: str | None = None
    status_code: str | None = None
    description: str = ""
    delivery: str | None = None
    handled: bool = False
    """Whether the caller expected the error and goes on, for example after a refused probe."""

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        found = self.counted
        if self.handled and self.error_type is not None:
            found[names.HANDLED_ERROR] = self.error_type
        if self.delivery is not None:
            found[names.DELIVERY] = self.delivery
        return found

    @property
    def counted(self) -> dict[str, AttributeValue]:
        found: dict[str, AttributeValue] = {}
        if self.error_type is not None and not self.handled:
            found[names.ERROR_TYPE] = self.error_type
        if self.status_code is not None:
            found[names.STATUS_CODE] = self.status_code
        return found


SUCCESS = Outcome()


class ClientSpan:
    """The CLIENT span of one message. Thread-safe; must be ended once, which runs the application's span processors."""

    __slots__ = ("_here", "_span", "is_ours", "was_recording")

    def __init__(self, span: Span, here: Context, *, is_ours: bool, was_recording: bool) -> None:
        """`here` is the context in which the request was made."""
        self._span = span
        self._here = here
        self.was_recording = was_recording
        """Whether it recorded anything at the start; if not, it never does."""
        self.is_ours = is_ours
        """Whether gaia ends the span. The application may end its own span before the request ends."""

    @property
    def context(self) -> Context:
        return trace.set_span_in_context(self._span, self._here)

    @property
    def is_recording(self) -> bool:
        return self._span.is_recording()

    def trace_id(self) -> str | None:
        """In hexadecimal digits; None if the span belongs to no trace."""
        try:
            found = self._span.get_span_context()
        except Exception as error:  # noqa: BLE001 - code of the application may raise anything
            _failed(error)
            return None
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    def inject(self, params: Mapping[str, Any] | None) -> dict[str, Any]:
        params = params or {}
        meta = params.get("_meta")
        # Most requests have none, and checking for a mapping takes time.
        carrier = dict(meta) if meta is not None and isinstance(meta, Mapping) else {}
        try:
            propagation.inject(carrier, self._span, self._here)
        except Exception as error:  # noqa: BLE001 - code of the application may raise anything
            _failed(error)
        return {**params, "_meta": carrier}

    @_guarded
    def set_attributes(self, attributes: Attributes) -> None:
        if self._span.is_recording():
            self._span.set_attributes(attributes)

    @_guarded
    def add_event(self, name: str, attributes: Attributes) -> None:
        if self._span.is_recording():
            self._span.add_event(name, attributes)

    @_guarded
    def link_current(self) -> None:
        """Link the current span of this thread, if there is one."""
        other = trace.get_current_span().get_span_context()
        if other.is_valid and self._span.is_recording():
            self._span.add_link(other)

    def conclude(self, outcome: Outcome, attributes: Attributes = _NOTHING) -> None:
        """Record how the request ended, with further attributes. `end` must follow, perhaps on another thread."""
        try:
            span = self._span
            if outcome is not SUCCESS:
                attributes = {**attributes, **outcome.attributes}
            if not attributes or not span.is_recording():
                return
            # In one call, because each call makes the SDK take two locks and check for a mapping.
            span.set_attributes(attributes)
            if outcome.error_type is not None and not outcome.handled:
                span.set_status(Status(StatusCode.ERROR, outcome.description or None))
        except Exception as error:  # noqa: BLE001 - as above
            _failed(error)

    def end(self, end_time: int | None = None) -> None:
        """`end_time` is in nanoseconds since the epoch; None is now."""
        if self.is_ours:
            try:
                self._span.end(end_time)
            except Exception as error:  # noqa: BLE001 - as above
                _failed(error)


def start_client_span(
    name: str, attributes: Attributes, *, tools: tuple[str, ...] = (), context: Context | None = None
) -> ClientSpan | None:
    """Start the span of a message about to be sent, as a child of the span in `context` (None: of the current span).

    None if tracing is off. For a tool call, `tools` are the names of the tool: if the current span is the
    ``execute_tool`` of one of them, this uses that span instead of a new one.
    """
    here = contexts.get_current() if context is None else context
    tracer = _tracer
    if type(tracer) is trace.ProxyTracer:
        provider = getattr(trace, "_TRACER_PROVIDER", _UNKNOWN)
        if provider is None and not here:
            return None
        known, tracer = _taken
        if provider is not known:
            tracer = _take_tracer(provider)
    if here and tools and _reuse_execute_tool_spans:
        outer = trace.get_current_span(here)
        if outer is not _NO_SPAN and _executes(outer, tools):
            outer.set_attributes(attributes)
            return ClientSpan(outer, here, is_ours=False, was_recording=True)
    span = _start_span(tracer, name, here, _CLIENT, attributes)
    if span is _NO_SPAN:
        return None
    was_recording = span.is_recording()
    # The context of an unsampled trace is not recorded, but passed to the server.
    if not was_recording and not span.get_span_context().is_valid:
        return None
    return ClientSpan(span, here, is_ours=True, was_recording=was_recording)


def tracing_is_off(context: Context | None = None) -> bool:
    """Whether the process has no tracer yet and `context` (None: the current one) is empty, so nothing can be traced.

    Every request calls this, because starting an empty span takes several times as long. The API has no public name for
    the provider that was set; if its private name changes, spans are started anyway.
    """
    return _has_no_provider(_tracer) and not (contexts.get_current() if context is None else context)


_taken: tuple[object, Tracer] = (None, _tracer)


def _take_tracer(provider: object) -> Tracer:
    global _taken  # noqa: PLW0603 - one tracer for the process, as above
    _taken = (provider, _tracer if provider is _UNKNOWN else trace.get_tracer("gaia.mcp"))
    return _taken[1]


def _has_no_provider(tracer: Tracer) -> bool:
    return type(tracer) is trace.ProxyTracer and getattr(trace, "_TRACER_PROVIDER", _UNKNOWN) is None


def start_internal_span(name: str, attributes: Attributes, context: Context | None) -> Span:
    """A span that the conventions do not define; it records nothing when tracing is off."""
    return _start_span(_tracer, name, context, SpanKind.INTERNAL, attributes)


class ServerSpan:
    """The SERVER span of a request from the other side, and its duration in the metrics."""

    def __init__(
        self,
        name: str,
        attributes: Attributes,
        details: Attributes,
        meta: Mapping[str, Any] | None,
        *,
        tracer: Tracer | None = None,
        ambient: bool = False,
        executor: Executor | None = None,
    ) -> None:
        """`attributes` are for the span and the metric, `details` only for the span.

        The parent is the context in `meta`, the ``_meta`` of the request's params. With `ambient`, the current span
        belongs to the request: it is linked, or becomes the parent if `meta` has none. `executor` ends the span; by
        default the thread that reports the answer does.
        """
        parent, links = remote_parent(meta), None
        if not ambient:
            parent = parent or Context()
        elif parent is not None and (here := trace.get_current_span().get_span_context()).is_valid:
            links = [Link(here)]
        everything = {**attributes, **details}
        self._span = _start_span(tracer or _tracer, name, parent, SpanKind.SERVER, everything, links)
        self._attributes = attributes
        self._executor = executor
        self._started = time.perf_counter()

    def current(self) -> AbstractContextManager[Span]:
        """Make this the current span, so that spans started for the answer become its children."""
        return trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    @_guarded
    def answered(self, code: int | None = None, error_type: str | None = None) -> None:
        """Record the sent answer, once: a result, or the error `code`. `error_type` is for failures without a code."""
        outcome: dict[str, AttributeValue] = {}
        if code is not None:
            outcome[names.STATUS_CODE] = str(code)
            error_type = None if code in names.CALLERS_FAULT else str(code)
        if error_type is not None:
            outcome[names.ERROR_TYPE] = error_type
        counted = {**self._attributes, **outcome}
        # The other side may invent names, and each would be a new series of the metric.
        if code == names.METHOD_NOT_FOUND:
            counted[names.METHOD_NAME] = "_OTHER"
        elif code == names.INVALID_PARAMS:
            counted.pop(names.TOOL_NAME, None)
            counted.pop(names.PROMPT_NAME, None)
        metrics.instruments.served_duration.record(time.perf_counter() - self._started, counted)
        span = self._span
        if not span.is_recording():
            return
        if outcome:
            span.set_attributes(outcome)
        if error_type is not None:
            span.set_status(Status(StatusCode.ERROR))
        now = time.time_ns()
        if self._executor is None:
            span.end(now)
        else:
            self._executor(lambda: span.end(now))


def remote_parent(meta: Mapping[str, Any] | None) -> Context | None:
    """The context that the other side sent; None if there is no usable one."""
    try:
        return propagation.extract(meta)
    except Exception as error:  # noqa: BLE001 - code of the application may raise anything
        _failed(error)
        return None


def _executes(span: Span, tools: tuple[str, ...]) -> bool:
    """Whether a span is the execution of one of these tools, and no call has added its attributes yet."""
    if not span.is_recording():
        return False
    # The API has no way to read attributes; the SDK's spans do.
    attributes = getattr(span, "attributes", None) or {}
    if attributes.get(names.OPERATION_NAME) != names.EXECUTE_TOOL or names.METHOD_NAME in attributes:
        return False
    return attributes.get(names.TOOL_NAME) in tools
