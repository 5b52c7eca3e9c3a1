"""Masks configured secrets in texts that are shown, logged or recorded."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "***"

SECRET_WORDS = (
    r"token|secret|passw|passphrase|api.?key|private.?key|access.?key"  # noqa: S105 - no password
    r"|auth(?!or(?!i))|credential|cookie|session|bearer"
)
"""Words in the name of a variable, a header or an argument whose value is most likely a secret, in any case."""

_SECRET_NAME = re.compile(rf"{SECRET_WORDS}|key|pass|auth|cred|private|dsn|assertion", re.IGNORECASE)
"""For variables and headers: with these words, their names mean a secret more often than names of arguments do."""

_URL_CREDENTIALS = re.compile(r"://([^/?#\s]+)@")
_MIN_NAMED = 4
_MIN_ANY = 8


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values in a server's configured `env` that must not be shown.

    A value of at least 4 characters counts as a secret if its name sounds like one. A value of at least 8 characters
    counts under any name: masking a harmless path costs less than showing a password.
    """
    return [
        value for name, value in environment.items() if len(value) >= (_MIN_NAMED if sounds_secret(name) else _MIN_ANY)
    ]


def sounds_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """The values in a server's configured `headers` that must not be shown.

    These are all values of at least 4 characters, and the part after the scheme ("Bearer"), which servers may repeat
    alone.
    """
    return [part for value in headers.values() for part in (value, value.partition(" ")[2]) if len(part) >= _MIN_NAMED]


def secret_url_parts(url: str) -> list[str]:
    """The parts of a server's `url` that must not be shown, each percent-encoded and decoded.

    These are the password, also as the header that sends it; the values of the query, chosen as in `secret_values`; and
    parts of the path that are not words, such as the tokens of webhooks.
    """
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return []
    found = [] if password is None else [password, *basic_credentials(unquote(parts.username or ""), unquote(password))]
    fields = [field.partition("=") for field in parts.query.split("&")]
    written = [secret for name, _, value in fields for secret in secret_values({name: value})]
    found += [*written, *(value.replace("+", " ") for value in written)]
    found += [segment for segment in parts.path.split("/") if _is_opaque(segment)]
    return [form for part in found for form in dict.fromkeys((part, unquote(part)))]


def url_credentials(values: Iterable[str]) -> list[str]:
    """The parts of URLs with credentials that must not be shown, such as URLs of proxies and package indexes.

    These are the password, percent-encoded and decoded, and user and password together, also as the header that sends
    them. A user without a password, or one that is not a word, is most likely a token.
    """
    found: list[str] = []
    for credentials in (match[1] for value in values for match in _URL_CREDENTIALS.finditer(value)):
        user, colon, password = credentials.partition(":")
        parts = [credentials, *basic_credentials(unquote(user), unquote(password))]
        parts += [password] if len(password) >= _MIN_NAMED else []
        parts += [user] if len(user) >= _MIN_NAMED and (not colon or _is_opaque(user)) else []
        found += [form for part in parts for form in dict.fromkeys((part, unquote(part))) if form]
    return found


def basic_credentials(user: str, password: str) -> list[str]:
    """Values of the Authorization header (RFC 7617), also in OAuth's form, where both parts are percent-encoded."""
    quoted_user, quoted_password = (quote(part, safe="", errors="surrogatepass") for part in (user, password))
    pairs = {f"{user}:{password}", f"{quoted_user}:{quoted_password}"}
    return [base64.b64encode(pair.encode("utf-8", "surrogatepass")).decode() for pair in sorted(pairs)]


def _is_opaque(segment: str) -> bool:
    return len(segment) >= _MIN_ANY and re.search(r"(?i)(?=.*[a-z]).*\d", segment) is not None


class Redactor:
    """Replaces every known secret in a text by ``***``, also where it is percent-encoded or in quotes. Thread-safe."""

    __slots__ = ("_pattern", "longest")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if secret for part in (secret, *_lines(secret)) for form in _forms(part)}
        # The longest first, so that a secret that contains another one is masked whole.
        alternatives = "|".join(re.escape(secret) for secret in sorted(known, key=len, reverse=True))
        self._pattern = re.compile(alternatives) if alternatives else None
        self.longest = max((len(secret.encode("utf-8", "surrogatepass")) for secret in known), default=0)
        """Bytes of the longest secret. A text whose beginning was cut off may start with that much of a secret."""

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def __repr__(self) -> str:
        return "Redactor(…)"


def repr_of_shown(value: Any) -> str:
    """The `repr` of an object that has secrets, from the parts that its `__rich_repr__` shows."""
    return f"{type(value).__name__}({', '.join(f'{name}={shown!r}' for name, shown in value.__rich_repr__())})"


def mask_strings(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value with secrets masked in its strings and keys; a number that is a secret is masked too."""
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
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A secret is masked only as a whole number, not as a part of one.
        return MASK if redact(str(value)) == MASK else value
    return value


def _lines(secret: str) -> list[str]:
    """The lines of a multi-line secret such as a private key, because a text may show a single one."""
    lines = secret.splitlines()
    return [line for line in lines if len(line) >= _MIN_ANY] if len(lines) > 1 else []


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, in JSON or Python's notation, and in a URL or a form."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    # Half a surrogate pair cannot be encoded, so it is in no URL.
    given = secret.encode("utf-8", "replace")
    for encoded in (quote(given), quote(given, safe=""), quote_plus(given)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)
