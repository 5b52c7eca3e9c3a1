"""Structured log events on top of the standard library's loggers.

Every event goes through ``logging.getLogger("gaia…")``. A program that has not configured logging sees warnings and
errors on standard error, one line each (`logging.lastResort`); a `logging.NullHandler` at the logger ``gaia`` turns
them off. structlog adds the fields that the application has bound with `structlog.contextvars`. The first event imports
structlog.

Filters and handlers are code of the application. For an event of an application's thread they run on that thread.
Events of engine threads (supervisors, readers, writers) reach them on the thread ``gaia-log``, in order; the records
still have the time, the thread and the context of the event. `flush` waits for that thread.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import functools
import json
import logging
import sys
import traceback
import weakref
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from gaia.runtime.handover import Handover, on_engine_thread
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.untrusted_text import clean

_EMITTER = 3
"""The number of frames between the emitting code and `logging.Logger.findCaller`."""


class EventLogger:
    """Emits named events with fields: ``logger.info("server_ready", server="time", generation=2)``. Thread-safe."""

    __slots__ = ("_stdlib", "is_enabled_for")

    def __init__(self, name: str) -> None:
        self._stdlib = logging.getLogger(name)
        self.is_enabled_for = self._stdlib.isEnabledFor
        """The logger's own bound method, because every tool call uses it."""

    def debug(self, event: str, **fields: Any) -> None:
        if self._stdlib.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        if self._stdlib.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        if self._stdlib.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        if self._stdlib.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        stdlib = self._stdlib
        try:
            file, line, function, _ = stdlib.findCaller(stacklevel=_EMITTER)
            # The record has no arguments, so logging does not interpolate percent signs.
            record = stdlib.makeRecord(stdlib.name, level, file, line, event, (), None, function)
            owners = [owner for known in _owners if (owner := known()) is not None]
            handle = functools.partial(_handle, record, owners, fields)
            if on_engine_thread():
                context = contextvars.copy_context()
                size = sum(len(value) for value in fields.values() if isinstance(value, str))
                _handlers.post(lambda: context.run(handle), size=len(event) + size)
            else:
                handle()
        except Exception as error:  # noqa: BLE001 - a handler may raise anything, and its event must cost nothing else
            _report(error)


def _handle(record: logging.LogRecord, owners: list[KnowsSecrets], fields: dict[str, Any]) -> None:
    own = {**fields, "event": record.msg}
    # The event's own fields come first, and win.
    event = {**own, **_bound_fields(), **own}
    if owners:
        # Callers mask their own texts first; this masks the application's bound fields too.
        event = _masked(event, owners)
    event |= _trace_ids()
    # Formatters print a traceback below the text.
    parts = [f"{key}={value!r}" for key, value in event.items() if key not in ("event", "exception")]
    record.msg = " ".join([str(event["event"]), *parts])
    # For formatters.
    record.event_fields, record.exc_text = event, event.get("exception")
    logging.getLogger(record.name).handle(record)


def _bound_fields() -> dict[str, Any]:
    try:
        import structlog
    except (OSError, ImportError, RuntimeError):
        # No descriptor is left for the import, or the interpreter is ending.
        return {}
    return structlog.contextvars.get_contextvars()


def _trace_ids() -> dict[str, str]:
    try:
        from opentelemetry import trace
    except (OSError, ImportError, RuntimeError):
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def flush(seconds: float = 2.0) -> bool:
    """Wait until the handlers have received all events so far, at most `seconds`. False if they have not by then.

    Events of gaia's own threads reach them a moment later than others. Connecting and disconnecting flush too.
    """
    return _handlers.flush(seconds)


def _report(error: BaseException) -> None:
    """Print an exception of a handler as `logging.Handler.handleError` does: only with `logging.raiseExceptions`."""
    if logging.raiseExceptions and sys.stderr:
        with contextlib.suppress(Exception):
            traceback.print_exception(error, file=sys.stderr)


class KnowsSecrets(Protocol):
    def redact(self, text: str) -> str:
        """`text` with the secrets masked."""


_registration = reentrant_lock()
"""For writing `_owners`. A writer replaces the tuple, so readers need no lock."""

_owners: tuple[weakref.ref[KnowsSecrets], ...] = ()


def mask_secrets_of(owner: KnowsSecrets) -> None:
    """Mask the secrets of `owner` in every event of every logger for as long as `owner` exists. Thread-safe."""
    global _owners  # noqa: PLW0603 - events of the whole process may hold them
    with _registration:
        _owners = (*(known for known in _owners if known() not in (None, owner)), weakref.ref(owner))


def mask_records_of(library: str) -> None:
    """Mask the same secrets in the records of a library's logger, which may contain URLs. Thread-safe."""
    # addFilter ignores a filter that is already there.
    logging.getLogger(library).addFilter(_mask_record)


def _mask_record(record: logging.LogRecord) -> bool:
    if owners := [owner for known in _owners if (owner := known()) is not None]:
        record.msg, record.args = _masked(record.getMessage(), owners), None
    return True


def _masked(value: Any, owners: list[KnowsSecrets], depth: int = 3) -> Any:
    if isinstance(value, str):
        for owner in owners:
            value = owner.redact(value)
    elif depth > 0 and isinstance(value, Mapping):
        return {key: _masked(member, owners, depth - 1) for key, member in value.items()}
    elif depth > 0 and isinstance(value, (list, tuple)):
        return [_masked(member, owners, depth - 1) for member in value]
    return value


def exception_text(error: BaseException) -> str:
    """The `repr` of an exception, for log events and error messages. Never raises."""
    try:
        return repr(error)
    except BaseException:  # noqa: BLE001 - code of the application may raise anything
        return f"{type(error).__name__}, which cannot be shown"


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception, for the field ``exception`` of a log event. Never raises."""
    try:
        return clean("".join(traceback.format_exception(error))).rstrip()
    except BaseException:  # noqa: BLE001 - as above
        return f"{type(error).__name__}, whose traceback cannot be shown"


def get_logger(name: str) -> EventLogger:
    return EventLogger(name)


def configure(*, level: int = logging.INFO, json: bool = False, stream: TextIO | None = None) -> None:
    """Send gaia's events to `stream` (stderr by default), as JSON lines or text. The library never calls this."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if json else _Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root = logging.getLogger("gaia")
    root.handlers[:] = [handler]
    root.setLevel(level)


def enable_debug() -> None:
    """Show gaia's debug events: on standard error, unless the application has given gaia's logger a handler."""
    root = logging.getLogger("gaia")
    root.setLevel(logging.DEBUG)
    if all(isinstance(handler, logging.NullHandler) for handler in root.handlers) and not logging.root.handlers:
        configure(level=logging.DEBUG)


class _Formatter(logging.Formatter):
    """Formats the time with its offset from UTC, in ISO 8601: ``2026-07-28T09:30:00.125+02:00``."""

    def formatTime(self, record: logging.LogRecord, _format: str | None = None) -> str:  # noqa: N802 - logging's name
        import datetime as dt

        return dt.datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import orjson

        # Records of other code below ``gaia`` have only a message.
        event = dict(getattr(record, "event_fields", None) or {"event": record.getMessage()})
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        event |= {"timestamp": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
        try:
            line = orjson.dumps(event, default=str).decode()
        except TypeError:
            # Integers over 64 bits, lone surrogates.
            return json.dumps(event, default=str)
        # A terminal acts on characters that JSON does not escape.
        return line if line.isascii() else json.dumps(event, default=str)


logger = get_logger(__name__)

atexit.register(flush)

_handlers = Handover("gaia-log", _report, lambda count: logger.warning("log_events_dropped", count=count))
