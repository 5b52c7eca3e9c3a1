"""The spans of this process, kept in memory as far as the page shows them."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode

from gaia.dashboard.journal import Journal
from gaia.telemetry import attributes as names

__all__ = ["AFTERMATH", "SpanStore"]

_SPANS = 6000
_SPANS_OF_A_TRACE = 300
_CALLS = 300
_LIVE = 2000
_EVENTS = 50
"""Of one span."""
_ITEMS = 50
"""Of one attribute that is a list."""
AFTERMATH = 0.5
"""Seconds. What a call leads to, such as the loss of its server, begins right after its end."""
_TEXT = 8 * 1024
"""Characters of one attribute; what is longer was meant for another audience."""


class SpanStore(SpanProcessor):
    """Keeps the last traces, and writes each tool call that ends into the journal. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        """Owns everything below; held for a few operations on them only."""
        self._closed = False
        self._live: dict[int, ReadableSpan] = {}
        self._traces: OrderedDict[int, deque[dict[str, Any]]] = OrderedDict()
        self._count = 0
        """Spans in all of them."""
        self._calls: deque[dict[str, Any]] = deque(maxlen=_CALLS)

    def attach(self) -> None:
        """Have this process' spans from now on. Makes the process trace, if the application has not done so."""
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            # Whatever the environment says about sampling: whoever looks at the page wants to see every call.
            provider = TracerProvider(sampler=ALWAYS_ON)
            trace.set_tracer_provider(provider)
        provider.add_span_processor(self)

    def close(self) -> None:
        """Take no notice of anything any more: the SDK has no way to detach a processor."""
        with self._lock:
            self._closed = True
            self._live.clear()
            self._traces.clear()
            self._calls.clear()
            self._count = 0

    # What the SDK calls, in the thread that starts or ends the span.

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's
        with self._lock:
            if not self._closed and len(self._live) < _LIVE:
                self._live[_span_id(span)] = span

    def on_end(self, span: ReadableSpan) -> None:
        record = _record(span)
        with self._lock:
            self._live.pop(_span_id(span), None)
            if self._closed:
                return
            self._remember(_trace_id(span), record)
            call = self._call(span)
            if call is not None:
                self._calls.append(call)
        if call is not None:
            self._journal.write("call", call)

    # What the page shows.

    def calls(self) -> list[dict[str, Any]]:
        """The last tool calls that have ended, oldest first."""
        with self._lock:
            return list(self._calls)

    def running(self) -> list[dict[str, Any]]:
        """The tool calls under way, oldest first."""
        with self._lock:
            return [call for span in self._live.values() if (call := self._call(span)) is not None]

    def story(self, trace_id: str, span_id: str) -> list[dict[str, Any]]:
        """The spans of a call's trace by their start, then those of traces that tell what became of its server.

        These are the traces that the call links to, and those of restarts that began while it ran or right after it.
        Spans under way are included. Empty if the call is not kept (any more).
        """
        with self._lock:
            kept = [span for spans in self._traces.values() for span in spans]
            kept += [_record(span) for span in self._live.values()]
        own = [span for span in kept if span["trace_id"] == trace_id]
        call = next((span for span in own if span["span_id"] == span_id), None)
        if call is None:
            return []
        others = {link for span in own for link in span["links"]} | {
            span["trace_id"] for span in kept if _follows(span, call)
        }
        told = [span for span in kept if span["trace_id"] in others - {trace_id}]
        return [*sorted(own, key=_by_start), *sorted(told, key=_by_start)]

    def _remember(self, trace_id: int, record: dict[str, Any]) -> None:
        spans = self._traces.get(trace_id)
        if spans is None:
            spans = self._traces[trace_id] = deque(maxlen=_SPANS_OF_A_TRACE)
        self._count += len(spans) < _SPANS_OF_A_TRACE
        spans.append(record)
        while self._count > _SPANS:
            _, oldest = self._traces.popitem(last=False)
            self._count -= len(oldest)

    def _call(self, span: ReadableSpan) -> dict[str, Any] | None:
        """The line of the call table for a span; None if it is no tool call, or a part of one."""
        attributes = span.attributes or {}
        if not _is_call(span):
            return None
        if span.parent is not None and (parent := self._live.get(span.parent.span_id)) is not None and _is_call(parent):
            # A round trip of the call.
            return None
        failed = span.status.status_code is StatusCode.ERROR
        return {
            "trace_id": trace.format_trace_id(_trace_id(span)),
            "span_id": trace.format_span_id(_span_id(span)),
            "server": _plain(attributes.get(names.SERVER_NAME)),
            "tool": _plain(attributes.get(names.TOOL_NAME)),
            "started": (span.start_time or 0) / 1e9,
            "seconds": _seconds(span),
            "outcome": "running" if span.end_time is None else "error" if failed else "ok",
            "error_type": _plain(attributes.get(names.ERROR_TYPE)),
            "message": _plain(span.status.description),
        }


def _follows(span: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether a span begins a restart of the call's server, during the call or right after it."""
    ended = float("inf") if call["seconds"] is None else call["started"] + call["seconds"] + AFTERMATH
    return (
        span["parent_id"] is None
        and span["kind"] == "internal"
        and span["attributes"].get(names.SERVER_NAME) == call["attributes"].get(names.SERVER_NAME)
        and bool(call["started"] <= span["started"] <= ended)
    )


def _by_start(span: dict[str, Any]) -> tuple[float, str]:
    return span["started"], span["span_id"]


def _is_call(span: ReadableSpan) -> bool:
    attributes = span.attributes or {}
    return (
        attributes.get(names.METHOD_NAME) == "tools/call"
        and names.SERVER_NAME in attributes
        and span.kind is not SpanKind.SERVER
    )


def _record(span: ReadableSpan) -> dict[str, Any]:
    """A span as JSON values."""
    return {
        "trace_id": trace.format_trace_id(_trace_id(span)),
        "span_id": trace.format_span_id(_span_id(span)),
        "parent_id": None if span.parent is None else trace.format_span_id(span.parent.span_id),
        "name": _plain(span.name),
        "kind": span.kind.name.lower(),
        "started": (span.start_time or 0) / 1e9,
        "seconds": _seconds(span),
        "status": span.status.status_code.name.lower(),
        "message": _plain(span.status.description),
        "attributes": _plain_mapping(span.attributes),
        "events": [
            {"name": _plain(event.name), "at": event.timestamp / 1e9, "attributes": _plain_mapping(event.attributes)}
            for event in list(span.events)[:_EVENTS]
        ],
        "links": [trace.format_trace_id(link.context.trace_id) for link in span.links],
    }


def _plain_mapping(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {_plain(key): _plain(value) for key, value in (attributes or {}).items()}


def _plain(value: Any) -> Any:
    """As JSON, and not without end."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT else f"{value[:_TEXT]}… ({len(value)} characters)"
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value[:_ITEMS]]
    return value


def _seconds(span: ReadableSpan) -> float | None:
    return None if span.end_time is None else (span.end_time - (span.start_time or 0)) / 1e9


def _trace_id(span: ReadableSpan) -> int:
    context = span.context
    return 0 if context is None else context.trace_id


def _span_id(span: ReadableSpan) -> int:
    context = span.context
    return 0 if context is None else context.span_id
