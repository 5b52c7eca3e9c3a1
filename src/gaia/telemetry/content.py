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
import orjson

from gaia.exception_text import exception_text
from gaia.log import get_logger

__all__ = [
    "MAX_PLAIN",
    "MODES",
    "CaptureMode",
    "ContentPolicy",
    "Kind",
    "Recorded",
    "default_mode",
    "has_hook",
    "is_confidential",
    "mask_confidential",
    "plain_json",
    "render",
    "render_call",
    "set_content_hook",
    "size_of",
]

logger = get_logger(__name__)

CaptureMode = Literal["off", "redacted", "full"]
MODES: Final = get_args(CaptureMode)

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's own switch; its values are those of the GenAI instrumentations."""

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
_BINARY_KEYS = {"data", "blob"}
_MIN_BINARY = 64


_PLAIN = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
MAX_PLAIN: Final = 4 * _MAX_CHARACTERS
"""Bytes of JSON that may be recorded as it is; what is longer has more than `_MAX_CHARACTERS`."""
_MAX_UNCUT = 1024
"""Characters of JSON that `_Masking` has room for, whatever its values are."""


Kind = Literal["arguments", "result"]


class Recorded(NamedTuple):
    """What a content hook is shown."""

    server: str
    tool: str
    """The tool's or the prompt's name."""
    kind: Kind
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


def has_hook() -> bool:
    """Whether the application decides what is recorded."""
    return _hook is not None


def default_mode() -> CaptureMode:
    """What `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says; "redacted" if it says nothing that we know."""
    # Every recorded call asks, and a variable that is not set takes `os.environ` 2 µs. Its dict has no public name; if
    # the private one changes, `os.environ` is asked.
    if _ENCODED_VARIABLE not in getattr(os.environ, "_data", _ALWAYS):
        return "redacted"
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
    """What is recorded of a value; None for nothing. `redact` masks the secrets that are known. Never raises.

    `redact` has to change every text that contains a text that it changes.
    """
    return _render(recorded, redact, plain_json(recorded.value))


def plain_json(value: Any) -> bytes | None:
    """A value of dicts, lists, texts and ordinary numbers as JSON: the bytes that `_encode` makes, in less time.

    None for everything else: other types, keys that are no texts, numbers that the two encoders write differently.
    """
    try:
        encoded = orjson.dumps(value, option=_PLAIN)
    except TypeError:
        return None
    # One character is found a hundred times faster than two are.
    if b"+" in encoded and (len(encoded) > MAX_PLAIN or b"e+" in encoded):
        return None
    return encoded


def render_call(
    server: str, tool: str, arguments: bytes | None, result: bytes | None, redact: Callable[[str], str]
) -> tuple[str | None, str | None]:
    """What `render` makes of the arguments and the result of a call in the mode "redacted"; of None, None.

    Both are what `plain_json` made of them, so they are searched for secrets together.
    """
    first, second = _uncut_text(arguments or b""), _uncut_text(result or b"")
    try:
        is_text = first is not None and second is not None and _hook is None
        if is_text and _is_harmless(f"{first}\n{second}", redact):
            return first or None, second or None
    except Exception:  # noqa: BLE001, S110 - what `redact` raises is logged below, where it is raised again
        pass
    return (
        _render_plain(server, tool, "arguments", arguments, redact),
        _render_plain(server, tool, "result", result, redact),
    )


def mask_confidential(text: str) -> str:
    """`text` with all that has the form of a secret, or is assigned to a name that sounds secret, masked."""
    if _may_have_form_of_secret(text):
        text = re.sub(_CONFIDENTIAL_TEXT, _MASK, text)
    if ("=" in text or ":" in text) and _may_sound_secret(_lowered(text)):
        text = re.sub(_ASSIGNMENT, rf"\1{_MASK}", text)
    return text


def is_confidential(text: str) -> bool:
    """Whether a text as a whole has the form of a secret, such as a token or a private key."""
    return _may_have_form_of_secret(text) and re.fullmatch(_CONFIDENTIAL_TEXT, text.strip()) is not None


def size_of(value: Any) -> int | None:
    """Bytes of a value as JSON; None if it cannot be expressed in JSON."""
    encoded = plain_json(value)
    if encoded is not None:
        return len(encoded)
    try:
        return len(_encode(value))
    except (TypeError, ValueError, RecursionError):
        return None


def _render(recorded: Recorded, redact: Callable[[str], str], encoded: bytes | None) -> str | None:
    """`encoded` is the value as plain JSON, if it can be that."""
    try:
        if _hook is not None:
            return _hook(recorded)
        if recorded.mode == "full":
            return _text_of(recorded.value) if encoded is None else encoded.decode()
        text = None if encoded is None else _uncut_text(encoded)
        if text is not None and _is_harmless(text, redact):
            return text
        return _masked_text(recorded.value, redact)
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and a value may be nested too deeply
        logger.warning("content_not_recorded", server=recorded.server, tool=recorded.tool, error=exception_text(error))
        return None


def _render_plain(
    server: str, tool: str, kind: Kind, encoded: bytes | None, redact: Callable[[str], str]
) -> str | None:
    if encoded is None:
        return None
    return _render(Recorded(server, tool, kind, "redacted", orjson.loads(encoded)), redact, encoded)


def _masked_text(value: Any, redact: Callable[[str], str]) -> str:
    return _cut(_text_of(_Masking(redact).of(value)))


def _uncut_text(encoded: bytes) -> str | None:
    """Plain JSON as text; None if `_Masking` may have no room for all of it."""
    if len(encoded) > MAX_PLAIN:
        return None
    text = encoded.decode()
    # Each key and each value takes at most 6 more characters of the room than it has in JSON.
    if len(text) > _MAX_UNCUT and len(text) + 6 * (text.count(",") + text.count(":") + 1) > _MAX_CHARACTERS:
        return None
    return text


def _is_harmless(text: str, redact: Callable[[str], str]) -> bool:
    """Whether `_masked_text` would leave plain JSON as it is. False if only a closer look could tell.

    All texts in it are searched at once, together with the punctuation between them: where nothing is found in the
    whole, nothing is found in a part of it.
    """
    if "\\" in text:
        unescaped = _unescaped(text)
        if unescaped is None:
            return False
        text = unescaped
    if _may_sound_secret(_lowered(text)) or '"data":"' in text or '"blob":"' in text or redact(text) != text:
        return False
    return not _may_have_form_of_secret(text) or re.search(_CONFIDENTIAL_TEXT, text) is None


def _unescaped(text: str) -> str | None:
    """JSON with the characters in its texts that are escaped; None if they are escaped by number, which is rare."""
    parts = [
        part.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\r", "\r")
        for part in text.split("\\\\")
    ]
    return None if any("\\" in part for part in parts) else "\\".join(parts)


# Regular expressions that begin with alternatives, or ignore case, take some 0.1 µs a character. Searching for what
# each match contains takes a hundredth of that, and finds nothing in most texts.


def _may_have_form_of_secret(text: str) -> bool:
    """False only if nothing in the text matches `_CONFIDENTIAL_TEXT`."""
    return (
        "eyJ" in text
        or ("k-" in text and ("sk-" in text or "pk-" in text or "rk-" in text))
        or ("k_" in text and ("sk_" in text or "pk_" in text or "rk_" in text))
        or ("gh" in text and re.search(r"gh[pousr]_|github_pat_", text) is not None)
        or "xox" in text
        or "AKIA" in text
        or "AIza" in text
        or "earer " in text
        or "EARER " in text
        or "PRIVATE KEY" in text
        or ("@" in text and "://" in text)
    )


def _may_sound_secret(lowered: str) -> bool:
    """False only if nothing in a text, which is `_lowered`, matches `_CONFIDENTIAL_KEY`, nor `_ASSIGNMENT`.

    True for "author": a long name may be cut behind its fourth letter.
    """
    return (
        "secret" in lowered
        or "token" in lowered
        or "passw" in lowered
        or "passphrase" in lowered
        or "credential" in lowered
        or "auth" in lowered
        or "cookie" in lowered
        or "session" in lowered
        or "bearer" in lowered
        or ("key" in lowered and ("api" in lowered or "private" in lowered or "access" in lowered))
    )


def _lowered(text: str) -> str:
    """In lower case as regular expressions see it, for which three letters of other alphabets are Latin ones too."""
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "i").lower().replace("\u0131", "i").replace("\u017f", "s")


class _Masking:
    """A copy of a JSON value without secrets and binary data. It stops when there is enough to fill what is kept."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._room = _MAX_CHARACTERS

    def of(self, value: Any) -> Any:
        # Most values are of these types; the question whether something is a mapping takes longer.
        if type(value) is str:
            return self._text(value)
        if type(value) is dict:
            return self._object(value)
        if type(value) is not int and type(value) is not bool:
            if isinstance(value, str):
                return self._text(value)
            if isinstance(value, (list, tuple)):
                return self._list(value)
            if isinstance(value, Mapping):
                return self._object(value)
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
    return _may_sound_secret(_lowered(name)) and re.search(_CONFIDENTIAL_KEY, name) is not None


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
