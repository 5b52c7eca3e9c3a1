"""`Principal`: the client that sent a request; `Pending`: the wait for the keys to verify its token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.serving.guards import Refused


@dataclass(frozen=True)
class Principal:
    """A client of the gateway. Principals with the same name are equal, even with different profiles."""

    name: str
    """The name of an entry in the clients file, or ``<issuer>/<subject>``, of which metrics show only the issuer."""
    profile: Profile = field(default=EVERYTHING, compare=False)
    grant: object = field(default=None, compare=False, repr=False)
    """For `Access.admits`: the token's hash in the clients file, or its issuer's settings; None without a token."""
    expires: float | None = field(default=None, compare=False)
    """When an issuer's token expires, in seconds since the epoch."""


def metric_name(client: str | None) -> str:
    """The client's name in metrics. All clients of an issuer share its name, because their number is unbounded."""
    return "" if client is None else client.partition("/")[0]


ANONYMOUS = Principal("anonymous", EVERYTHING)
"""The client of a gateway without a clients file. Only this machine can reach such a gateway."""


class Pending:
    """A request that waits for the issuer's keys. For one event loop."""

    def __init__(self) -> None:
        self._answer: Principal | Refused | None = None
        self._then: Callable[[Principal | Refused], None] | None = None

    def then(self, callback: Callable[[Principal | Refused], None]) -> None:
        """Call `callback` with the answer on the loop, at once if it is known. Only one callback is possible."""
        if self._answer is not None:
            callback(self._answer)
        else:
            self._then = callback

    def settle(self, answer: Principal | Refused) -> None:
        self._answer = answer
        if self._then is not None:
            self._then(answer)


WELL_KNOWN = "/.well-known/oauth-protected-resource"

ENDPOINT = "/mcp"


class ProtectedResource:
    """The gateway as a protected resource (RFC 9728): ``/mcp`` and each endpoint below it. Immutable."""

    def __init__(self, resource: str, issuers: Iterable[str], scopes: Iterable[str]) -> None:
        """`resource` is the URL of ``/mcp`` as clients know it, without a slash at its end."""
        self._resource = resource
        self._issuers = list(issuers)
        self._scopes = sorted(set(scopes))

    def identifier(self, path: str) -> str:
        return self._resource + path.removeprefix(ENDPOINT).rstrip("/")

    def document(self, path: str) -> bytes | None:
        """The metadata at `path`, as JSON; None if it has none.

        Clients compare the identifier with the URL they use.
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
        parts = urlsplit(self.identifier(path))
        return parts._replace(path=WELL_KNOWN + parts.path).geturl()

    def challenge(
        self, path: str, error: str | None = None, description: str | None = None
    ) -> tuple[tuple[bytes, bytes]]:
        """The header WWW-Authenticate for the endpoint at `path`. Without `error`, the request had no token."""
        return challenge(
            error=error,
            error_description=description,
            resource_metadata=self.metadata_url(path),
            scope=" ".join(self._scopes) or None,
        )


def challenge(**fields: str | None) -> tuple[tuple[bytes, bytes]]:
    """The header WWW-Authenticate (RFC 6750) with all `fields` that are not None."""
    given = (f'{name}="{_quoted(value)}"' for name, value in fields.items() if value is not None)
    return ((b"www-authenticate", f"Bearer {', '.join(given)}".encode()),)


def _quoted(value: str) -> str:
    """`value` without characters that would end the quoted string or the header."""
    return "".join(letter for letter in value if letter.isprintable() and letter.isascii() and letter not in '"\\')
