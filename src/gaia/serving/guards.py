"""`Guard`: the checks that every HTTP request passes before it is handled."""

from __future__ import annotations

import functools
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from gaia.serving.options import HttpOptions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = Sequence[tuple[bytes, bytes]]
"""The headers of a request or a response. Names are in lower case."""

HEALTH = "/health"

_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 32 * 1024
_ONCE = frozenset((b"host", b"origin", b"authorization", b"content-type", b"content-length"))
"""Headers that may occur only once, as all protocol headers may, whose names begin with ``mcp-``."""
_HOSTS = 16
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Refused(NamedTuple):
    """A refused request. The message is for the client."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    reason: str | None = None
    """One word for figures and logs; None if the request is not counted."""


class Guard:
    """Refuses foreign hosts (421) and origins (403), wrong tokens (401), and bodies not in JSON (415) or too large.

    The check of Host and Origin keeps web pages from reaching a server on the user's machine by DNS rebinding. Bodies
    must be JSON, because a browser sends other types, such as text/plain, without asking the server first.

    ``/health`` needs no token; neither do `open_paths`.
    """

    def __init__(self, options: HttpOptions, open_paths: frozenset[str] = frozenset()) -> None:
        self._options = options
        # Parsing a URL takes as long as all other checks, and clients send few different values.
        self._allows_host = functools.lru_cache(_HOSTS)(options.allows_host)
        self._open_paths = open_paths

    def refusal(self, method: str, path: str, given: Sequence[tuple[bytes, bytes]]) -> Refused | None:
        """Why a request with these headers is refused before its body is read; None if it is accepted."""
        headers = {name.lower(): value for name, value in given}
        # A repeated header makes the dictionary shorter than the list.
        if len(headers) < len(given) and (twice := repeated(given)) is not None:
            return twice
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy in front may have seen another end of the body (RFC 9112, section 6.1).
            text = "A request may have Content-Length or Transfer-Encoding"
            return Refused(400, text, ((b"connection", b"close"),))
        host = _text(headers.get(b"host"))
        if not self._allows_host(host):
            return Refused(421, "This host name is not served here; see --allow-host")
        if _are_too_large(given):
            return Refused(431, f"There may be {_MAX_HEADERS} headers and {_MAX_HEADER_BYTES} bytes of them")
        if b"origin" in headers and not self._options.allows_origin(_text(headers[b"origin"]), host):
            return Refused(403, "Web pages of this origin may not call this server; see --allow-origin")
        if path == HEALTH:
            return None
        if not self._may_pass(method, path, headers):
            return Refused(401, "A valid bearer token is needed", ((b"www-authenticate", b"Bearer"),))
        if method in _WITH_BODY and not _is_json(headers.get(b"content-type", b"")):
            return Refused(415, "The body must be JSON, with Content-Type: application/json")
        return self.too_large(_declared_length(headers))

    def too_large(self, size: int) -> Refused | None:
        if size <= self._options.max_body:
            return None
        return Refused(413, f"The body is larger than {self._options.max_body} bytes")

    def _may_pass(self, method: str, path: str, headers: dict[bytes, bytes]) -> bool:
        if path in self._open_paths:
            return True
        if self._options.token is None or (method == "OPTIONS" and self._options.allow_origins):
            # A browser's CORS preflight request carries no token.
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._options.token.encode())


def repeated(headers: Sequence[tuple[bytes, bytes]]) -> Refused | None:
    """Why a request with a repeated header is refused: a proxy may have used the other value. None if it is not."""
    seen: set[bytes] = set()
    for given, _ in headers:
        name = given.lower()
        if name in _ONCE or name.startswith(b"mcp-"):
            if name in seen:
                return Refused(400, f"The header {_text(name)[:64]} is there twice")
            seen.add(name)
    return None


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone. The body of its request must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _are_too_large(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return len(headers) > _MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > _MAX_HEADER_BYTES


def _is_json(content_type: bytes) -> bool:
    media_type = content_type.partition(b";")[0].strip().lower()
    return media_type == b"application/json" or (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    )


def _declared_length(headers: dict[bytes, bytes]) -> int:
    declared = headers.get(b"content-length", b"0")
    # The HTTP server itself refuses other values.
    return int(declared) if declared.isdigit() else 0


def _text(value: bytes | None) -> str:
    return (value or b"").decode("latin-1")


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClientAddress:
    def __init__(self, trusted: Iterable[str]) -> None:
        """`trusted` are addresses and networks of proxies, such as ``10.0.0.0/8``. Raises ValueError."""
        self._networks = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def trusts(self, peer: str | None) -> bool:
        if not self._networks or peer is None:
            return False
        found = _address(peer)
        return found is not None and any(found in network for network in self._networks)

    def behind(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The address of the client whose request `peer`, a trusted proxy, has forwarded.

        Names of `headers` are in lower case. Each proxy appends the address of its own client, so the client is the
        last address that is not a trusted proxy; earlier entries may be forged. If an entry is not an address, the
        proxy that wrote it counts as the client.
        """
        client = peer
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        for each in reversed(given.split(",")):
            found = _address(each.strip())
            if found is None:
                break
            client = str(found)
            if not self.trusts(client):
                break
        return client


def _address(text: str) -> _Address | None:
    """The address in an entry, without the port that some proxies append; None if it is not an address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


_EXPOSED = ("mcp-session-id", "mcp-protocol-version")


class Cors:
    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = tuple(origins)
        self._allowed = {origin.encode() for origin in self._origins}
        self._expose = (b"access-control-expose-headers", ", ".join(_EXPOSED).encode())

    def headers(self, request: Mapping[bytes, bytes]) -> Headers:
        """The headers for the response. `request` has the request's headers, names in lower case."""
        origin = request.get(b"origin")
        if origin is None or origin not in self._allowed:
            return ()
        return ((b"access-control-allow-origin", origin), self._expose, (b"vary", b"Origin"))

    def around(self, app: Any) -> Any:
        """Wrap an ASGI application, to add the headers and to answer browsers' preflight requests."""
        if not self._origins:
            return app
        from starlette.middleware.cors import CORSMiddleware

        return CORSMiddleware(
            app,
            allow_origins=self._origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
