"""Keeps this process's spans and log events in memory for the page."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping, Set
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, SpanKind

from gaia.dashboard.live_updates import UpdateBuffer
from gaia.mcp.protocol.messages import value_size
from gaia.runtime.locks import reentrant_lock
from gaia.telemetry import attributes as names
from gaia.telemetry.configuration import tracer_provider
from gaia.telemetry.spans import running_readers

_MAX_SPANS = 6000
_MAX_SPANS_OF_A_TRACE = 300
_MAX_BYTES = 64 * 1024 * 1024
_MAX_CALLS = 300
_MAX_LIVE = 2000
_MAX_EVENTS = 50
_MAX_ITEMS = 50
_MAX_TEXT = 8 * 1024
SECONDS_AFTER_CALL = 0.5
"""How long after a call events, such as the loss of its server, count as its consequences."""


class SpanStore(SpanProcessor):
    """Keeps the last traces, and writes each ended tool call into the update buffer. Thread-safe."""

    def __init__(self, buffer: UpdateBuffer) -> None:
        self._buffer = buffer
        self._lock = reentrant_lock()
        """Guards the attributes below. Held for a few operations only."""
        self._closed = False
        self._live: dict[int, ReadableSpan] = {}
        self._traces: OrderedDict[str, deque[dict[str, Any]]] = OrderedDict()
        self._count = self._size = 0
        self._calls: deque[dict[str, Any]] = deque(maxlen=_MAX_CALLS)

    def attach(self) -> None:
        """Keep this process's spans from now on. Sets a tracer provider if the application has not set one."""
        running_readers.add(self)
        tracer_provider().add_span_processor(self)

    def close(self) -> None:
        """Forget all spans, and ignore later ones, because the SDK cannot detach a processor."""
        running_readers.discard(self)
        with self._lock:
            self._closed = True
            self._live.clear()
            self._traces.clear()
            self._calls.clear()
            self._count = self._size = 0

    # The SDK calls these two in the thread that starts or ends the span.

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's
        with self._lock:
            if not self._closed and len(self._live) < _MAX_LIVE:
                self._live[_context(span).span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        record = _record(span)
        with self._lock:
            self._live.pop(_context(span).span_id, None)
            if self._closed:
                return
            self._remember(record)
            if not self._is_whole_call(span):
                return
            call = _row(record)
            self._calls.append(call)
        self._buffer.write("call", call)

    def calls(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._calls)

    def running(self) -> list[dict[str, Any]]:
        with self._lock:
            return [_row(_record(span)) for span in self._live.values() if self._is_whole_call(span)]

    def related(self, trace_id: str, span_id: str) -> list[dict[str, Any]]:
        """The spans of a call's trace by their start, then those of related traces.

        Related traces are those that the call links to, and restarts of its server during the call or right after it.
        Open spans are included. Empty if the call is no longer kept.
        """
        with self._lock:
            kept = [span for spans in self._traces.values() for span in spans]
            kept += [_record(span) for span in self._live.values()]
        own = [span for span in kept if span["trace_id"] == trace_id]
        call = next((span for span in own if span["span_id"] == span_id), None)
        if call is None:
            return []
        traces = {link for span in own for link in span["links"]} | {trace_id}
        traces |= {span["trace_id"] for span in kept if _follows(span, call)}
        related = [span for span in kept if span["trace_id"] in traces]
        return sorted(related, key=lambda span: (span["trace_id"] != trace_id, span["started"], span["span_id"]))

    def _remember(self, record: dict[str, Any]) -> None:
        spans = self._traces.setdefault(record["trace_id"], deque())
        spans.append(record)
        self._count += 1
        self._size += value_size(record)
        if len(spans) > _MAX_SPANS_OF_A_TRACE:
            self._forget(spans)
        while self._count > _MAX_SPANS or self._size > _MAX_BYTES:
            trace_id, oldest = next(iter(self._traces.items()))
            self._forget(oldest)
            if not oldest:
                del self._traces[trace_id]

    def _forget(self, spans: deque[dict[str, Any]]) -> None:
        self._size -= value_size(spans.popleft())
        self._count -= 1

    def _is_whole_call(self, span: ReadableSpan) -> bool:
        """Whether a span is a tool call, and not a single round trip of a call."""
        if not _is_call(span):
            return False
        parent = None if span.parent is None else self._live.get(span.parent.span_id)
        return parent is None or not _is_call(parent)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    attributes = record["attributes"]
    running, failed = record["seconds"] is None, record["status"] == "error"
    return {
        **{key: record[key] for key in ("trace_id", "span_id", "started", "seconds", "message")},
        "server": attributes.get(names.SERVER_NAME),
        "tool": attributes.get(names.TOOL_NAME),
        "outcome": "running" if running else "error" if failed else "ok",
        "error_type": attributes.get(names.ERROR_TYPE),
        "progress": attributes.get(names.PROGRESS) if running else None,
        "total": attributes.get(names.PROGRESS_TOTAL) if running else None,
    }


def _follows(span: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether a span is a restart of the call's server that began during the call or right after it."""
    ended = float("inf") if call["seconds"] is None else call["started"] + call["seconds"] + SECONDS_AFTER_CALL
    return (
        span["parent_id"] is None
        and span["kind"] == "internal"
        and span["attributes"].get(names.SERVER_NAME) == call["attributes"].get(names.SERVER_NAME)
        and bool(call["started"] <= span["started"] <= ended)
    )


def _is_call(span: ReadableSpan) -> bool:
    attributes = span.attributes or {}
    return (
        attributes.get(names.METHOD_NAME) == "tools/call"
        and names.SERVER_NAME in attributes
        and span.kind is not SpanKind.SERVER
    )


def _record(span: ReadableSpan) -> dict[str, Any]:
    started = span.start_time or 0
    return {
        "trace_id": trace.format_trace_id(_context(span).trace_id),
        "span_id": trace.format_span_id(_context(span).span_id),
        "parent_id": None if span.parent is None else trace.format_span_id(span.parent.span_id),
        "name": _plain(span.name),
        "kind": span.kind.name.lower(),
        "started": started / 1e9,
        "seconds": None if span.end_time is None else (span.end_time - started) / 1e9,
        "status": span.status.status_code.name.lower(),
        "message": _plain(span.status.description),
        "attributes": _plain_mapping(span.attributes),
        "events": [
            {"name": _plain(event.name), "at": event.timestamp / 1e9, "attributes": _plain_mapping(event.attributes)}
            for event in list(span.events)[:_MAX_EVENTS]
        ],
        "links": [trace.format_trace_id(link.context.trace_id) for link in span.links],
    }


def _plain_mapping(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {_plain(key): _plain(value) for key, value in (attributes or {}).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value[:_MAX_ITEMS]]
    return value


def _context(span: ReadableSpan) -> SpanContext:
    return span.context or INVALID_SPAN_CONTEXT


_MAX_RECORDS = 5000
_MAX_LOG_BYTES = 32 * 1024 * 1024
_MAX_LOG_TEXT = 4 * 1024
_MAX_SHOWN = 500


class LogStore(logging.Handler):
    """Keeps the last log events of the loggers below ``gaia``. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._records: deque[dict[str, Any]] = deque()
        self._size = 0
        self._kept = reentrant_lock()
        """Guards both attributes above."""
        self._level_before: int | None = None

    def attach(self, level: int | None) -> None:
        """Keep the events from now on. `level` is set on gaia's logger until `detach`; None leaves it unchanged."""
        logger = logging.getLogger("gaia")
        if level is not None:
            self._level_before = logger.level
            logger.setLevel(level)
        logger.addHandler(self)

    def detach(self) -> None:
        logger = logging.getLogger("gaia")
        logger.removeHandler(self)
        if self._level_before is not None:
            logger.setLevel(self._level_before)
            self._level_before = None
        with self._kept:
            self._records.clear()
            self._size = 0

    def emit(self, record: logging.LogRecord) -> None:
        kept = _kept(record)
        size = value_size(kept)
        with self._kept:
            self._records.append(kept)
            self._size += size
            while len(self._records) > _MAX_RECORDS or self._size > _MAX_LOG_BYTES:
                self._size -= value_size(self._records.popleft())

    def of_traces(
        self, traces: Set[str], server: str | None, began: float, ended: float | None
    ) -> list[dict[str, Any]]:
        """The events of these traces, and events without a trace about the server in that time.

        `began` and `ended` are in seconds since the epoch; `ended` is None while the call runs.
        """
        with self._kept:
            records = list(self._records)

        def belongs(record: dict[str, Any]) -> bool:
            if record["trace_id"] is not None:
                return record["trace_id"] in traces
            in_time = began <= record["at"] <= (float("inf") if ended is None else ended)
            return server is not None and record["server"] == server and in_time

        return [record for record in records if belongs(record)][-_MAX_SHOWN:]


def _kept(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, "event_fields", None) or {"event": record.getMessage()})
    named = {name: fields.pop(name, None) for name in ("event", "trace_id", "span_id", "server")}
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return {
        "at": record.created,
        "level": record.levelname.lower(),
        "logger": record.name,
        **named,
        "event": _text(named["event"]),
        "fields": {str(name): _text(value) for name, value in fields.items() if value is not None},
    }


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_LOG_TEXT else f"{text[:_MAX_LOG_TEXT]}…"
