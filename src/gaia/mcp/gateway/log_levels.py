"""The severities of log messages, and which messages a client wants."""

from __future__ import annotations

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The words of RFC 5424, the least severe first."""

_SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}


def severity(level: object) -> int:
    """The place of a level among the words; unknown ones count as info."""
    return _SEVERITY.get(str(level), 1)


def is_wanted(level: object, least: str | None) -> bool:
    """Whether a message of `level` is as severe as `least`; with None, none is wanted."""
    return least is not None and severity(level) >= severity(least)
