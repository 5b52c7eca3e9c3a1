"""What a gateway says of itself to clients that have no token yet: RFC 9728, and the header WWW-Authenticate."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

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
