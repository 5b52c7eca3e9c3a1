"""`Principal`: the client that a request comes from; and what a request without a good token is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.gateway.access.profile import EVERYTHING, Profile


@dataclass(frozen=True)
class Principal:
    """A client of the gateway. Two are the same client if their names are equal, whatever the profile has become."""

    name: str
    """For spans, metrics and the audit: the name of an entry in the clients file, or ``<issuer>/<subject>``. Metrics,
    which need few values, have only the issuer of the latter."""
    profile: Profile = field(default=EVERYTHING, compare=False)
    grant: object = field(default=None, compare=False, repr=False)
    """What its token was accepted by, for `Access.admits`: the token's hash in the clients file, or the settings of its
    issuer. None without a token."""
    expires: float | None = field(default=None, compare=False)
    """When an issuer's token expires, in seconds since the epoch."""


def metric_name(client: str | None) -> str:
    """The client's name in metrics. Clients of an issuer have the issuer's, because there may be any number of them."""
    return "" if client is None else client.partition("/")[0]


ANONYMOUS = Principal("anonymous", EVERYTHING)
"""The client of a gateway that knows no clients, which only this machine can reach."""


Reason = Literal[
    "no_token", "wrong_token", "no_rights", "unknown_handle", "foreign_session", "unknown_session", "over_limit"
]
"""Why a request was refused, for metrics, the log and the audit."""


@dataclass(frozen=True)
class Refused:
    """A request that is answered without looking at its body."""

    status: int
    """HTTP status: 401, 403 or 503."""
    message: str
    """For the client; nothing of its token is in it."""
    www_authenticate: str | None = None
    """The value of that header; None for none."""
    retry_after: int | None = None
    """Seconds for the header Retry-After; None for none."""
    reason: Reason | None = None
    """None if the gateway could not judge the token: that is no trouble of the client's."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of the response that say how to go on."""
        found = []
        if self.www_authenticate is not None:
            found.append((b"www-authenticate", self.www_authenticate.encode("latin-1")))
        if self.retry_after is not None:
            found.append((b"retry-after", str(self.retry_after).encode()))
        return found


class Pending:
    """A request whose token cannot be judged before the issuer's keys have been fetched. For one event loop."""

    def __init__(self) -> None:
        self._answer: Principal | Refused | None = None
        self._then: Callable[[Principal | Refused], None] | None = None

    def then(self, callback: Callable[[Principal | Refused], None]) -> None:
        """Have `callback` called with the answer, on the loop: now, if it is known already. One callback at most."""
        if self._answer is not None:
            callback(self._answer)
        else:
            self._then = callback

    def settle(self, answer: Principal | Refused) -> None:
        """Tell the answer. For the part of `Access` that has fetched the keys."""
        self._answer = answer
        if self._then is not None:
            self._then(answer)


WELL_KNOWN = "/.well-known/oauth-protected-resource"

ENDPOINT = "/mcp"


class ProtectedResource:
    """The gateway as a protected resource: ``/mcp`` and each endpoint below it. Immutable."""

    def __init__(self, resource: str, issuers: Iterable[str], scopes: Iterable[str]) -> None:
        """`resource` is the URL of ``/mcp`` as clients know it, without a slash at its end."""
        self._resource = resource
        self._issuers = list(issuers)
        self._scopes = sorted(set(scopes))

    def identifier(self, path: str) -> str:
        """The resource identifier of the endpoint at `path` (``/mcp/git``): its URL."""
        return self._resource + path.removeprefix(ENDPOINT).rstrip("/")

    def document(self, path: str) -> bytes | None:
        """The metadata at `path`, as JSON; None if that is no path of metadata.

        Each endpoint has its own, because a client has to compare the identifier with the URL that it uses.
        """
        prefix = WELL_KNOWN + urlsplit(self._resource).path
        if path in (WELL_KNOWN, prefix):
            identifier = self._resource
        elif path.startswith(f"{prefix}/"):
            identifier = self._resource + path.removeprefix(prefix).rstrip("/")
        else:
            return None
        document: dict[str, object] = {
            "resource": identifier,
            "authorization_servers": self._issuers,
            "bearer_methods_supported": ["header"],
        }
        if self._scopes:
            document["scopes_supported"] = self._scopes
        return msgspec.json.encode(document)

    def metadata_url(self, path: str) -> str:
        """Where the metadata of the endpoint at `path` is."""
        parts = urlsplit(self.identifier(path))
        return parts._replace(path=WELL_KNOWN + parts.path).geturl()

    def challenge(self, path: str, error: str | None = None, description: str | None = None) -> str:
        """The value of WWW-Authenticate for the endpoint at `path`: without `error` if there was no token at all."""
        return challenge(
            error=error,
            error_description=description,
            resource_metadata=self.metadata_url(path),
            scope=" ".join(self._scopes) or None,
        )


def challenge(**fields: str | None) -> str:
    """The value of the header WWW-Authenticate (RFC 6750) with those of `fields` that are not None."""
    return "Bearer " + ", ".join(f'{name}="{_quoted(value)}"' for name, value in fields.items() if value is not None)


def _quoted(value: str) -> str:
    """Without what ends a quoted string, or the header."""
    return "".join(letter for letter in value if letter.isprintable() and letter.isascii() and letter not in '"\\')
