"""Masks configured secrets in texts that are shown, logged or recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["MASK", "Redactor", "mask_strings", "secret_headers", "secret_url_parts", "secret_values", "sounds_secret"]

MASK = "***"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|KEY|PASS|AUTH|CRED|COOKIE|SESSION|PRIVATE|DSN|BEARER|ASSERTION", re.IGNORECASE)
_MIN_NAMED = 4
_MIN_ANY = 8


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values in a server's configured `env` that must not be shown.

    A value counts as a secret when its name sounds like one and it has at least 4 characters, or when it has at least
    8 characters under any name: masking a harmless path costs less than showing a password.
    """
    return [
        value for name, value in environment.items() if len(value) >= (_MIN_NAMED if sounds_secret(name) else _MIN_ANY)
    ]


def sounds_secret(name: str) -> bool:
    """Whether a variable or header of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """The values of a server's configured `headers` that must not be shown.

    That is every value of at least 4 characters, and the part after its scheme ("Bearer"), because servers may repeat
    it alone.
    """
    return [part for value in headers.values() for part in (value, value.partition(" ")[2]) if len(part) >= _MIN_NAMED]


def secret_url_parts(url: str) -> list[str]:
    """What must not be shown of a server's `url`: its password, and the values of its query that may be secret.

    Those are chosen as for `secret_values`. Each is given both percent-encoded and decoded.
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
        """Bytes of the longest secret: a text that was cut at its beginning may start with that much of a secret."""

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
    """The lines of a secret such as a private key: they may be shown one by one, and with other line ends."""
    lines = secret.splitlines()
    return [line for line in lines if len(line) >= _MIN_ANY] if len(lines) > 1 else []
