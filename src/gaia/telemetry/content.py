"""What spans record of arguments and results: nothing, a masked and shortened version, or everything."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from gaia.exception_text import exception_text
from gaia.log import get_logger

__all__ = [
    "MODES",
    "CaptureMode",
    "ContentPolicy",
    "Recorded",
    "default_mode",
    "is_confidential",
    "mask_confidential",
    "render",
    "set_content_hook",
    "size_of",
]

logger = get_logger(__name__)

CaptureMode = Literal["off", "redacted", "full"]
MODES: Final = get_args(CaptureMode)

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's own switch; its values are those of the GenAI instrumentations."""

_BY_VARIABLE: Final[dict[str, CaptureMode]] = {
    "true": "full",
    "span_only": "full",
    "span_and_event": "full",
    "false": "off",
    "no_content": "off",
    "event_only": "off",
}

_MAX_CHARACTERS = 4096
_SEARCHED_CHARACTERS = 16 * 1024
"""So much of a text is searched for secrets before it is cut: half a secret would not be recognised."""

_MASK = "***"
# Compiled when first used (`re` keeps them): most programs that import this record no content.
_CONFIDENTIAL_KEY = (
    r"(?i)token|secret|passw|passphrase|api.?key|private.?key|access.?key|auth(?!or(?!i))|credential|cookie|session"
    r"|bearer"
)
_CONFIDENTIAL_TEXT = (
    r"\b(?:[Bb]earer|BEARER) [\w.~+/=-]{8,}"  # what an Authorization header holds
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bxox[abeoprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # user and password in a URL
)
# DB_PASSWORD=…, "clientSecret": "…", api-key: …; the name and the sign stay.
_ASSIGNMENT = (
    r"(?i)((?:passw|passphrase|secret|token(?!s)|(?:api|access|private)[_-]?key|credential)[\w-]{0,40}"
    r"[\"']?[ \t]{0,3}[=:][ \t]{0,3})(?:\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;&<>]{4,})"
)
_ASSIGNMENT_MARKS = ("passw", "passphrase", "secret", "token", "key", "credential")
_BINARY_KEYS = {"data", "blob"}
_MIN_BINARY = 64


_SECRET_MARKS = ("earer ", "EARER ", "eyJ", "k-", "k_", "gh", "xox", "AKIA", "AIza", "PRIVATE KEY", "://")
"""A text that has none of these matches nothing of `_CONFIDENTIAL_TEXT`, and is not searched: that takes far longer."""


class Recorded(NamedTuple):
    """What a content hook is shown."""

    server: str
    tool: str
    """The tool's or the prompt's name."""
    kind: Literal["arguments", "result"]
    mode: CaptureMode
    """Never "off"."""
    value: Any
    """As it was sent or received: neither masked nor cut."""


ContentHook = Callable[[Recorded], str | None]
"""Returns the text to record instead of what the mode would; None records nothing."""

_hook: ContentHook | None = None


def set_content_hook(hook: ContentHook | None) -> None:
    """Let `hook` decide what spans record of arguments and results; None takes it away. Applies to the whole process.

    It runs on the thread that makes the call, or on a callback thread. If it raises, nothing is recorded of that value.
    """
    global _hook  # noqa: PLW0603 - one hook for the process, as the tracer is one
    _hook = hook


def default_mode() -> CaptureMode:
    """What `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says; "redacted" if it says nothing that we know."""
    return _BY_VARIABLE.get(os.environ.get(CAPTURE_VARIABLE, "").strip().lower(), "redacted")


class ContentPolicy(msgspec.Struct, frozen=True):
    """How much is recorded of the arguments and results of one server's tools and prompts."""

    mode: CaptureMode | None = None
    """None: see `default_mode`."""
    tools: Mapping[str, CaptureMode] = {}
    """By globs of the server's own names; the first one that matches counts."""

    def mode_for(self, tool: str) -> CaptureMode:
        """What is recorded of calls of `tool`, by the server's own name for it."""
        for pattern, mode in self.tools.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return mode
        return default_mode() if self.mode is None else self.mode


def render(recorded: Recorded, redact: Callable[[str], str]) -> str | None:
    """What is recorded of a value; None for nothing. `redact` masks the secrets that are known. Never raises."""
    try:
        if _hook is not None:
            return _hook(recorded)
        if recorded.mode == "full":
            return _text_of(recorded.value)
        return _cut(_text_of(_Masking(redact).of(recorded.value)))
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and a value may be nested too deeply
        logger.warning("content_not_recorded", server=recorded.server, tool=recorded.tool, error=exception_text(error))
        return None


def mask_confidential(text: str) -> str:
    """`text` with all that has the form of a secret, or is assigned to a name that sounds secret, masked."""
    if any(mark in text for mark in _SECRET_MARKS):
        text = re.sub(_CONFIDENTIAL_TEXT, _MASK, text)
    if "=" in text or ":" in text:
        lowered = text.lower()
        if any(mark in lowered for mark in _ASSIGNMENT_MARKS):
            text = re.sub(_ASSIGNMENT, rf"\1{_MASK}", text)
    return text


def is_confidential(text: str) -> bool:
    """Whether a text as a whole has the form of a secret, such as a token or a private key."""
    return any(mark in text for mark in _SECRET_MARKS) and re.fullmatch(_CONFIDENTIAL_TEXT, text.strip()) is not None


def size_of(value: Any) -> int | None:
    """Bytes of a value as JSON; None if it cannot be expressed in JSON."""
    try:
        return len(_encode(value))
    except (TypeError, ValueError, RecursionError):
        return None


class _Masking:
    """A copy of a JSON value without secrets and binary data. It stops when there is enough to fill what is kept."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._room = _MAX_CHARACTERS

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, (list, tuple)):
            return self._list(value)
        self._room -= 8
        return value

    def _object(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for count, (key, member) in enumerate(value.items()):
            if self._room <= 0:
                kept["…"] = f"{len(value) - count} more"
                break
            name = self._text(str(key))
            # A limit such as `max_tokens` is no secret.
            if _sounds_secret(name[:64]) and not isinstance(member, (bool, int, float, type(None))):
                kept[name] = _MASK
            elif name in _BINARY_KEYS and (size := _binary_size(member)) is not None:
                kept[name] = f"({size} bytes)"
            else:
                kept[name] = self.of(member)
        return kept

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        kept: list[Any] = []
        for count, member in enumerate(value):
            if self._room <= 0:
                kept.append(f"… {len(value) - count} more")
                break
            kept.append(self.of(member))
        return kept

    def _text(self, text: str) -> str:
        searched = text[:_SEARCHED_CHARACTERS]
        masked = mask_confidential(self._redact(searched))
        if len(text) > _SEARCHED_CHARACTERS:
            # The beginning of a secret whose end was not looked at.
            masked = masked[:-_MAX_CHARACTERS]
        shown = masked[: max(0, self._room)]
        self._room -= len(shown) + 4
        complete = len(shown) == len(masked) and len(text) <= _SEARCHED_CHARACTERS
        return shown if complete else f"{shown}… ({len(text)} characters)"


@functools.lru_cache(maxsize=1024)
def _sounds_secret(name: str) -> bool:
    return re.search(_CONFIDENTIAL_KEY, name) is not None


def _binary_size(value: Any) -> int | None:
    """Bytes of what looks like base64; None for everything else."""
    if not isinstance(value, str) or len(value) < _MIN_BINARY:
        return None
    try:
        base64.b64decode(value[:_MIN_BINARY], validate=True)
    except (binascii.Error, ValueError):
        return None
    return len(value) * 3 // 4


def _text_of(value: Any) -> str:
    return _encode(value).decode()


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can express and UTF-8 cannot.
        return json.dumps(value, separators=(",", ":")).encode()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
