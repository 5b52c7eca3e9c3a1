"""Reads the response of a server that refuses a request for lack of authorization (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import httpx2

_MAX_CHALLENGE = 8 * 1024
_REVISION = "MCP-Protocol-Version"
_PARAMETER = r'(?:^|[\s,]){}=(?:"([^"]*)"|([^\s,"]+))'
_SCOPE = re.compile(_PARAMETER.format("scope"))
_ERROR = re.compile(_PARAMETER.format("error"))


class Challenge(msgspec.Struct, frozen=True):
    """A 401, or a 403 because the token's scope is not enough."""

    status: int = 401
    www_authenticate: str = ""
    revision: str | None = None

    @classmethod
    def of(cls, status: int, www_authenticate: str | None, revision: str | None) -> Challenge | None:
        """The challenge in a response; None if it does not concern authorization. `revision` is the request's."""
        wanted = (www_authenticate or "")[:_MAX_CHALLENGE]
        if status == 401 or (status == 403 and _parameter(_ERROR, wanted) == "insufficient_scope"):
            return cls(status, wanted, revision)
        return None

    @property
    def wants_more(self) -> bool:
        """Whether the token is valid but lacks a scope (step-up)."""
        return self.status == 403

    @property
    def scope(self) -> str | None:
        return _parameter(_SCOPE, self.www_authenticate)

    def replay(self, url: str) -> tuple[httpx2.Request, httpx2.Response]:
        import httpx2

        request = httpx2.Request("POST", url, headers={} if self.revision is None else {_REVISION: self.revision})
        headers = {"WWW-Authenticate": self.www_authenticate} if self.www_authenticate else {}
        return request, httpx2.Response(self.status, headers=headers, request=request, content=b"")


def _parameter(pattern: re.Pattern[str], header: str) -> str | None:
    found = pattern.search(header)
    return None if found is None else found[1] if found[1] is not None else found[2]
