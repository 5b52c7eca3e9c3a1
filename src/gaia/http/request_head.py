"""The head of a request, as bytes. Names and values are checked: nothing in them can begin another header."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""Headers that say where a request ends, which only the client knows."""

_TOKEN = frozenset(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Request line and headers, each with its line end; the empty line is not there yet.

    Raises ValueError, which shows no value.
    """
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers.items():
        if not name or not _TOKEN.issuperset(name):
            raise ValueError(f"headers: {name!r} is not the name of a header")
        if name.lower() in _FRAMING:
            raise ValueError(f"headers.{name}: the client sets it")
        # Visible characters of ASCII, spaces and tabs.
        if not (value.isascii() and value.replace("\t", " ").isprintable()):
            raise ValueError(f"headers.{name}: the value has characters that cannot be sent (line breaks, accents, …)")
        lines.append(f"{name}: {value.strip()}\r\n")
    return "".join(lines).encode("ascii")


def merged(*several: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """All headers; of those with the same name, in whatever case, the last one."""
    by_name: dict[str, tuple[str, str]] = {}
    for headers in several:
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            by_name[name.lower()] = (name, value)
    return dict(by_name.values())
