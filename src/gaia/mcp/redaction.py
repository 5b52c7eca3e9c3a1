"""Keeps configured secrets out of everything that people or telemetry get to see."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["MASK", "Redactor", "mask_strings", "secret_headers", "secret_url_parts", "secret_values", "sounds_secret"]

MASK = "***"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|KEY|PASS|AUTH|CRED|COOKIE|SESSION|PRIVATE|DSN|BEARER|ASSERTION", re.IGNORECASE)
_SHORTEST_NAMED = 4
_SHORTEST_ANY = 8


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values in a server's configured `env` that must not be shown.

    A value counts as a secret when its name sounds like one and it has at least 4 characters, or when it has at least
    8 characters whatever its name: masking a harmless path costs less than showing a password.
    """
    return [
        value
        for name, value in environment.items()
        if len(value) >= (_SHORTEST_NAMED if sounds_secret(name) else _SHORTEST_ANY)
    ]


def sounds_secret(name: str) -> bool:
    """Whether a variable or header of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """The values of a server's configured `headers` that must not be shown.

    That is every value of at least 4 characters, and what follows its scheme ("Bearer"), which servers like to repeat
    alone.
    """
    return [
        part for value in headers.values() for part in (value, value.partition(" ")[2]) if len(part) >= _SHORTEST_NAMED
    ]


def secret_url_parts(url: str) -> list[str]:
    """What must not be shown of a server's `url`: its password, and the values of its query that may be secret.

    Those are chosen as for `secret_values`. Each is given as it is written and as it is meant.
    """
    try:
        parts = urlsplit(url)
        passwords = [] if parts.password is None else [parts.password, unquote(parts.password)]
    except ValueError:
        return []
    fields = [field.partition("=") for field in parts.query.split("&")]
    written = [secret for name, _, value in fields for secret in secret_values({name: value})]
    return [*passwords, *written, *(unquote(value.replace("+", " ")) for value in written)]


class Redactor:
    """Replaces every known secret in a text by ``***``. Immutable, thread-safe."""

    __slots__ = ("_pattern", "longest")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {part for secret in secrets if secret for part in (secret, *_lines(secret))}
        # The longest first, so that a secret which contains another one is masked whole.
        alternatives = "|".join(re.escape(secret) for secret in sorted(known, key=len, reverse=True))
        self._pattern = re.compile(alternatives) if alternatives else None
        self.longest = max((len(secret.encode("utf-8", "surrogatepass")) for secret in known), default=0)
        """Bytes of the longest secret: so much of a text that begins in its middle may be the end of a secret."""

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def __repr__(self) -> str:
        return "Redactor(…)"


def mask_strings(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value with every string in it masked, keys included."""
    try:
        return _masked(value, redact)
    except RecursionError:
        return "(too deeply nested to show)"


def _masked(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_masked(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): _masked(item, redact) for key, item in value.items()}
    return value


def _lines(secret: str) -> list[str]:
    """The lines of a private key, say: they are shown one by one, and their ends may be written differently."""
    lines = secret.splitlines()
    return [line for line in lines if len(line) >= _SHORTEST_ANY] if len(lines) > 1 else []
