"""What a server says when it refuses a request for want of authorization (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re

import httpx2
import msgspec

__all__ = ["Challenge"]

_MAX_CHALLENGE = 8 * 1024
"""Characters that are kept of the header: they are searched, shown, and handed to the SDK."""

_REVISION = "MCP-Protocol-Version"
_PARAMETER = r'(?:^|[\s,]){}=(?:"([^"]*)"|([^\s,"]+))'
_SCOPE = re.compile(_PARAMETER.format("scope"))
_ERROR = re.compile(_PARAMETER.format("error"))


class Challenge(msgspec.Struct, frozen=True):
    """A 401, or a 403 that wants more of a token than it gives."""

    status: int = 401
    www_authenticate: str = ""
    revision: str | None = None
    """The protocol revision of the refused request."""

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge | None:
        """What `response` asks for; None if that has nothing to do with authorization."""
        wanted = response.headers.get("WWW-Authenticate", "")[:_MAX_CHALLENGE]
        error = _parameter(_ERROR, wanted)
        if response.status_code == 401 or (response.status_code == 403 and error == "insufficient_scope"):
            return cls(response.status_code, wanted, response.request.headers.get(_REVISION))
        return None

    @property
    def wants_more(self) -> bool:
        """The token is good, but does not give enough (step-up)."""
        return self.status == 403

    @property
    def scope(self) -> str | None:
        return _parameter(_SCOPE, self.www_authenticate)

    def replay(self, url: str) -> tuple[httpx2.Request, httpx2.Response]:
        """A request like the refused one, and its answer."""
        request = httpx2.Request("POST", url, headers={} if self.revision is None else {_REVISION: self.revision})
        headers = {"WWW-Authenticate": self.www_authenticate} if self.www_authenticate else {}
        return request, httpx2.Response(self.status, headers=headers, request=request, content=b"")


def _parameter(pattern: re.Pattern[str], header: str) -> str | None:
    found = pattern.search(header)
    return None if found is None else found[1] if found[1] is not None else found[2]
