"""gaia's log events, kept in memory as far as the page shows them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Set
from typing import Any

from gaia.mcp.protocol.messages import value_size
from gaia.runtime.locks import reentrant_lock

_MAX_RECORDS = 5000
_MAX_BYTES = 32 * 1024 * 1024
"""Of all records."""
_MAX_TEXT = 4 * 1024
_MAX_SHOWN = 500
"""Events for one call."""


class LogStore(logging.Handler):
    """Keeps the last events of the loggers below ``gaia``. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._records: deque[dict[str, Any]] = deque()
        self._size = 0
        """Bytes of the records."""
        self._kept = reentrant_lock()
        """Owns both."""
        self._level_before: int | None = None

    def attach(self, level: int | None) -> None:
        """Keep the events from now on. `level` is set on gaia's logger until `detach`; None leaves it as it is."""
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
            while len(self._records) > _MAX_RECORDS or self._size > _MAX_BYTES:
                self._size -= value_size(self._records.popleft())

    def of_traces(
        self, traces: Set[str], server: str | None, began: float, ended: float | None
    ) -> list[dict[str, Any]]:
        """The events of these traces, and those about the server in that time that have no trace.

        `began` and `ended` are in seconds since the epoch; `ended` is None while the call runs.
        """
        with self._kept:
            records = list(self._records)

        def belongs(record: dict[str, Any]) -> bool:
            if record["trace_id"] is not None:
                return record["trace_id"] in traces
            in_time = began <= record["at"] and (ended is None or record["at"] <= ended)
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
        "event": _text(named["event"]),
        "server": named["server"],
        "trace_id": named["trace_id"],
        "span_id": named["span_id"],
        "fields": {str(name): _text(value) for name, value in fields.items() if value is not None},
    }


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
