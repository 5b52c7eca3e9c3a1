"""Compares URIs of resources with the filters of profiles, in a canonical form.

Servers read URIs in different ways: some decode escapes once, some twice, some resolve ``..`` in the query too. A
filter must hold for each way. So filters compare a canonical form, and a URI without one passes no filter. A URI that
passes goes to the server unchanged.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import unquote

from gaia.mcp.tools.tool_filter import ToolFilter

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_REST = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|[^\x00-\x7f]|%[0-9A-Fa-f]{2})*")
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_SEPARATORS = re.compile("[/?#;&=]")
_AUTHORITY = re.compile(r"//([^/?#]*)(.*)", re.DOTALL)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:%]+)(?::([0-9]*))?")
_QUERY = re.compile(r"\[?[?#;]")
_PARAMETERS = re.compile("(?:;|::)[^/?#]*")
_ENDS_OF_NAMES = re.compile("[. ]+(?=/|$)")
_WILD = re.compile(r"[*?\[{]")
_WILD_ESCAPE = re.compile("%(?:2[Aa]|3[Ff]|5[Bb])")
_PORTS = {"http": "80", "ws": "80", "https": "443", "wss": "443", "ftp": "21"}
"""Schemes whose URIs have a host, and their default ports."""


class _Form(NamedTuple):
    scheme: str
    """In lower case; "" for a pattern whose scheme has a wildcard."""
    rest: str
    """The rest of the URI, decoded, without leading slashes."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.rest}" if self.scheme else self.rest


def allows_uri(filtered: ToolFilter, server: str, uri: str) -> bool:
    """Whether a URI passes a filter in every way that a server may read it."""
    if filtered.allow is None and not filtered.deny:
        return True
    if not filtered.allows(server, uri):
        return False
    form = _form_of(uri)
    if form is None or _is_denied(filtered, form):
        return False
    return filtered.allow is None or any(_permits(pattern, form) for pattern in filtered.allow)


def allows_template(filtered: ToolFilter, server: str, template: str) -> bool:
    """Whether the text of a template passes a filter. Each URI made from the template must pass `allows_uri` too."""
    return filtered.allows(server, template) and not _is_denied(filtered, _form_of_pattern(template))


def _form_of(uri: str) -> _Form | None:
    """The canonical form of a URI; None if servers may read the URI in different ways.

    The form has no escapes, no userinfo, no default port and no leading slashes. A malformed URI has no form, and
    neither has a URI that contains, once decoded, another escape, a backslash, a control or invisible character, or a
    segment ``.`` or ``..``, even in its query or fragment.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or _SCHEME.fullmatch(scheme) is None or _REST.fullmatch(rest) is None:
        return None
    placed = _with_host(scheme.lower(), rest)
    try:
        text = None if placed is None else unquote(placed, errors="strict")
    except UnicodeDecodeError:
        return None
    if text is None or not text.isprintable() or "\\" in text or _ESCAPE.search(text):
        return None
    # Some systems treat characters like similar ones, such as full-width characters.
    alike = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if alike != text and any(alike.count(mark) != text.count(mark) for mark in "/\\%"):
        return None
    # Spaces count too: Windows drops them at the end of a name.
    if any("." in part and not part.strip(". ") for part in _SEPARATORS.split(alike)):
        return None
    return _Form(scheme.lower(), text.lstrip("/"))


def _with_host(scheme: str, rest: str) -> str | None:
    """`rest` with its authority, if any, in canonical form; None if the authority is not accepted."""
    found = _AUTHORITY.fullmatch(rest)
    if scheme == "file":
        if found is None:
            return rest
        return found[2] if found[1].lower() in ("", "localhost") else None
    if found is None:
        return None if scheme in _PORTS else rest
    authority, path = found[1].rpartition("@")[2], found[2]
    if scheme not in _PORTS:
        return f"//{authority}{path}"
    host = _host_of(authority, _PORTS[scheme])
    return None if host is None else f"//{host}{path if path.startswith('/') else '/' + path}"


def _host_of(authority: str, usual_port: str) -> str | None:
    parts = _HOST.fullmatch(authority)
    if parts is None:
        return None
    name, port = parts[1].lower(), (parts[2] or "").lstrip("0")
    try:
        if name.startswith("["):
            name = f"[{ipaddress.IPv6Address(name[1:-1]).compressed}]"
        else:
            name = name.encode("idna").decode("ascii").lower().removesuffix(".")
            if re.fullmatch("[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
                # An IPv4 address has many spellings.
                name = str(ipaddress.IPv4Address(name))
    except ValueError:
        return None
    return name if port in ("", usual_port) else f"{name}:{port}"


@functools.lru_cache(maxsize=1024)
def _form_of_pattern(pattern: str) -> _Form:
    """The canonical form of a glob or a template. Parts with wildcards are not changed."""
    scheme, colon, rest = pattern.partition(":")
    if not colon or _SCHEME.fullmatch(scheme) is None:
        return _Form("", pattern)
    scheme = scheme.lower()
    found = _AUTHORITY.fullmatch(rest)
    if found is not None and _WILD.search(found[1]) is None:
        rest = _with_host(scheme, rest) or rest
    rest = _WILD_ESCAPE.sub(lambda escape: f"[{unquote(escape[0])}]", rest)
    return _Form(scheme, unquote(rest).lstrip("/"))


def _is_denied(filtered: ToolFilter, form: _Form) -> bool:
    patterns = _folded_patterns(tuple(filtered.deny))
    return any(fnmatchcase(reading, pattern) for reading in _readings(form) for pattern in patterns)


@functools.lru_cache(maxsize=64)
def _folded_patterns(deny: tuple[str, ...]) -> list[str]:
    own = (each for text in deny for each in (text, str(_with_single_slashes(_form_of_pattern(text)))))
    return list(dict.fromkeys(map(_folded, own)))


def _readings(form: _Form) -> Iterator[str]:
    """The texts that are compared with a deny list: lower case, with and without parts that a server may drop."""
    whole = _folded(str(_with_single_slashes(form)))
    # Some web servers drop the parameters of segments. Windows drops the name of a file's default stream (::$DATA).
    bare = form._replace(rest=_PARAMETERS.sub("", form.rest).lstrip("/"))
    without = whole if bare == form else _folded(str(_with_single_slashes(bare)))
    for reading in dict.fromkeys((whole, without, *(whole.partition(end)[0] for end in "#?;"))):
        yield reading
        # Windows drops dots and spaces at the end of a name.
        short = _ENDS_OF_NAMES.sub("", reading).rstrip("/")
        if short != reading:
            yield short


def _permits(pattern: str, form: _Form) -> bool:
    """Whether a pattern of an allow list matches a URI, both with and without the URI's query."""
    own = _form_of_pattern(pattern)
    if not fnmatchcase(str(form), str(own)) or ("//" in form.rest and "//" not in own.rest):
        # After an empty segment, a server may continue at the root.
        return False
    path = _without_query(form)
    return path == form or any(fnmatchcase(str(path), str(each)) for each in (own, _without_query(own)))


def _without_query(form: _Form) -> _Form:
    return form._replace(rest=_QUERY.split(form.rest, maxsplit=1)[0])


def _with_single_slashes(form: _Form) -> _Form:
    return form._replace(rest=re.sub("//+", "/", form.rest))


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
