"""How much of arguments and results spans record: nothing, a masked and shortened version, or everything."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
import orjson

from gaia.runtime.log import exception_text, get_logger
from gaia.telemetry import masking
from gaia.telemetry.masking import MAX_CHARACTERS

logger = get_logger(__name__)

CaptureMode = Literal["off", "redacted", "full"]
MODES: Final = get_args(CaptureMode)

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's own switch; it has the values of the GenAI instrumentations."""

_ENCODED_VARIABLE: Final = os.environ.encodekey(CAPTURE_VARIABLE)
_ALWAYS: Final = frozenset((_ENCODED_VARIABLE,))

_BY_VARIABLE: Final[dict[str, CaptureMode]] = {
    "true": "full",
    "span_only": "full",
    "span_and_event": "full",
    "false": "off",
    "no_content": "off",
    "event_only": "off",
}

_PLAIN = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_MAX_PLAIN: Final = 4 * MAX_CHARACTERS
"""Bytes of JSON that may be recorded unchanged. A longer value has more than `MAX_CHARACTERS` characters."""
_MAX_UNCUT = 1024

Kind = Literal["arguments", "result"]


class Recorded(NamedTuple):
    """The argument of a content hook."""

    server: str
    tool: str
    """The name of the tool or the prompt."""
    kind: Kind
    mode: CaptureMode
    """Never "off"."""
    value: Any
    """The value as sent or received: neither masked nor cut."""


ContentHook = Callable[[Recorded], str | None]
"""Returns the text to record instead of the mode's; None records nothing."""

_hook: ContentHook | None = None


def set_content_hook(hook: ContentHook | None) -> None:
    """Let `hook` decide what spans record of arguments and results; None removes it. Applies to the whole process.

    The hook runs on the thread that makes the call, or on a callback thread. If it raises, the value is not recorded.
    """
    global _hook  # noqa: PLW0603 - one hook for the process, as the tracer is one
    _hook = hook


def default_mode() -> CaptureMode:
    """The mode in `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`; "redacted" for no or an unknown value."""
    # Every recorded call reads it, and `os.environ` takes 2 µs for a variable that is not set. Its dict has no public
    # name; if the private name changes, `os.environ` is used.
    if _ENCODED_VARIABLE not in getattr(os.environ, "_data", _ALWAYS):
        return "redacted"
    return _BY_VARIABLE.get(os.environ.get(CAPTURE_VARIABLE, "").strip().lower(), "redacted")


class ContentPolicy(msgspec.Struct, frozen=True):
    """How much is recorded of the arguments and results of one server's tools and prompts."""

    mode: CaptureMode | None = None
    """None means `default_mode`."""
    tools: Mapping[str, CaptureMode] = {}
    """By globs of the server's own names; the first match counts."""

    def mode_for(self, tool: str) -> CaptureMode:
        """The mode for calls of `tool`, by the server's own name for it."""
        for pattern, mode in self.tools.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return mode
        return default_mode() if self.mode is None else self.mode


def measured(recorded: Recorded, redact: Callable[[str], str] | None) -> tuple[int | None, str | None]:
    """The bytes of a value as JSON, and the text to record; each may be None. Never raises.

    `redact` masks the known secrets. If it changes a text, it must change every longer text that contains it. Without
    `redact`, and in the mode "off", nothing is recorded.
    """
    encoded = _plain_json(recorded.value)
    try:
        size = len(_encode(recorded.value) if encoded is None else encoded)
    except (TypeError, ValueError, RecursionError):
        size = None
    if redact is None or recorded.mode == "off":
        return size, None
    try:
        if _hook is not None:
            return size, _hook(recorded)
        if recorded.mode == "full":
            return size, (_encode(recorded.value) if encoded is None else encoded).decode()
        text = None if encoded is None else _uncut_text(encoded)
        if text is not None and masking.is_harmless(text, redact):
            return size, text
        return size, _cut(_encode(masking.masked(recorded.value, redact)).decode())
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and a value may be nested too deeply
        logger.warning("content_not_recorded", server=recorded.server, tool=recorded.tool, error=exception_text(error))
        return size, None


def _plain_json(value: Any) -> bytes | None:
    """JSON of plain values, the same bytes as `_encode`, but faster; None if the encoders may differ."""
    try:
        encoded = orjson.dumps(value, option=_PLAIN)
    except TypeError:
        return None
    # Searching one character is a hundred times faster than searching two.
    if b"+" in encoded and (len(encoded) > _MAX_PLAIN or b"e+" in encoded):
        return None
    return encoded


def _uncut_text(encoded: bytes) -> str | None:
    """Plain JSON as text; None if `masking.masked` might cut it."""
    if len(encoded) > _MAX_PLAIN:
        return None
    text = encoded.decode()
    # In the room of `masked`, each key and each value takes at most 6 characters more than in JSON.
    if len(text) > _MAX_UNCUT and len(text) + 6 * (text.count(",") + text.count(":") + 1) > MAX_CHARACTERS:
        return None
    return text


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half a surrogate pair: JSON can express it, UTF-8 cannot.
        return json.dumps(value, separators=(",", ":")).encode()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
