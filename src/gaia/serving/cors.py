"""`Cors`: lets web pages of other origins read responses (the Fetch standard, "CORS protocol").

Which origins may call at all is decided by the guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gaia.serving.direct_handler import Headers

_EXPOSED = ("mcp-session-id", "mcp-protocol-version")


class Cors:
    """Immutable."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = tuple(origins)
        self._allowed = {origin.encode() for origin in self._origins}
        self._expose = (b"access-control-expose-headers", ", ".join(_EXPOSED).encode())

    @property
    def is_on(self) -> bool:
        """Whether any origin is allowed."""
        return bool(self._origins)

    def headers(self, request: Mapping[bytes, bytes]) -> Headers:
        """What is added to the response to a request with these headers, whose names are in lower case."""
        origin = request.get(b"origin")
        if origin is None or origin not in self._allowed:
            return ()
        return ((b"access-control-allow-origin", origin), self._expose, (b"vary", b"Origin"))

    def around(self, app: Any) -> Any:
        """The same for an ASGI application; also answers what browsers ask before some requests."""
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
