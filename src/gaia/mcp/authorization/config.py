"""The ``auth`` object of a server's configuration, and the application's part in a login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from gaia.runtime.redaction import basic_credentials, repr_of_shown

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

LOGIN_SECONDS = 300.0


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """Sent when a server requires a person to log in."""

    server: str
    """The server's name."""
    url: str
    """The URL of the login page. The application opens it in a browser, and shows the whole URL."""


OnAuthorization = Callable[[AuthorizationRequest], str | None]
"""Sends a person to the authorization server, in its own thread.

Returns the address to which the browser was redirected, if the application received it itself; None if the redirect
comes to a port of this machine.
"""


class _Credentials(msgspec.Struct, frozen=True, tag_field="type", rename="camel"):
    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # rich would show msgspec's own version, which has all fields, in tracebacks.
        return [("client_id", getattr(self, "client_id", None))]


class OAuth(_Credentials, frozen=True, kw_only=True, tag="oauth"):
    """A person logs in, in a browser (the authorization code flow with PKCE). The default if nothing is configured.

    Without `client_id` this client registers itself at the authorization server: by `client_metadata_url` if the server
    accepts that, else by dynamic registration. The `repr` shows no secret.
    """

    client_id: str | None = None
    """From an earlier registration at the authorization server."""
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """The https address of a client id metadata document."""
    scopes: list[str] | None = None
    """Scopes to request instead of the server's suggestion; scopes that the server requires are added."""
    issuer: str | None = None
    """The authorization server; by default the first that the server names. `client_secret` is sent to no other."""
    redirect_uri: str | None = None
    """The redirect target of the browser; by default a free port of this machine."""

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret: there is no clientId that it belongs to")
        if self.client_secret is not None and self.issuer is None:
            # Otherwise the secret would go to any authorization server that the MCP server names.
            raise ValueError(
                "issuer: missing; the clientSecret is sent only to the authorization server that issued it, such as "
                '"issuer": "https://login.example.com"'
            )
        if self.client_metadata_url is not None:
            parts = urlsplit(self.client_metadata_url)
            if parts.scheme != "https" or parts.path in ("", "/"):
                raise ValueError("client_metadata_url: must be an https address with a path")
            if self.client_id is not None:
                raise ValueError("client_metadata_url: there is a clientId too; keep one of them")
        if self.issuer is not None:
            _require_issuer(self.issuer)
        if self.redirect_uri is not None:
            parts = urlsplit(self.redirect_uri)
            if parts.scheme == "http" and (parts.hostname not in LOOPBACK_HOSTS or not parts.port):
                raise ValueError("redirect_uri: over http, only a port of this machine: http://127.0.0.1:<port>/…")


class ClientCredentials(_Credentials, frozen=True, kw_only=True, tag="client_credentials"):
    """The program logs in as itself, with a secret. No person is asked."""

    client_id: str
    client_secret: str
    issuer: str
    """The authorization server that issued the secret. The secret is sent nowhere else, whatever the server says."""
    scopes: list[str] | None = None
    token_auth: Literal["basic", "post"] = "basic"  # noqa: S105 - the way in which the secret is sent
    """How the authorization server expects the secret: in a header or in the form."""

    def __post_init__(self) -> None:
        _require_issuer(self.issuer)


class PrivateKeyJwt(_Credentials, frozen=True, kw_only=True, tag="private_key_jwt"):
    """The program logs in as itself, and proves it with a signature (RFC 7523). No person is asked."""

    client_id: str
    private_key: str
    """In PEM."""
    issuer: str
    algorithm: str = "RS256"
    scopes: list[str] | None = None

    def __post_init__(self) -> None:
        _require_issuer(self.issuer)


class WorkloadIdentity(_Credentials, frozen=True, kw_only=True, tag="workload_identity"):
    """The program's platform confirms its identity with a token (RFC 7523, SEP-1933)."""

    client_id: str
    issuer: str
    assertion: str | None = None
    assertion_file: str | None = None
    """Read for each login, because platforms replace it."""
    scopes: list[str] | None = None

    def __post_init__(self) -> None:
        _require_issuer(self.issuer)
        if (self.assertion is None) == (self.assertion_file is None):
            raise ValueError("assertion: give either assertion or assertionFile")


class NoLogin(msgspec.Struct, frozen=True, tag="none", tag_field="type"):
    """Never log in, even if the server asks for it."""


_SECRETS = ("client_secret", "private_key", "assertion")

AuthConfig = OAuth | ClientCredentials | PrivateKeyJwt | WorkloadIdentity | NoLogin


def auth_secrets(config: AuthConfig | None) -> list[str]:
    """The secrets of a login's configuration, also in the form in which they are sent."""
    found = [secret for name in _SECRETS if (secret := getattr(config, name, None))]
    if isinstance(config, (OAuth, ClientCredentials)) and config.client_secret:
        found += basic_credentials(config.client_id or "", config.client_secret)
    return found


def _require_issuer(issuer: str) -> None:
    # A variable is checked after its expansion.
    if "${" not in issuer and urlsplit(issuer).scheme not in ("http", "https"):
        raise ValueError(f"issuer: must be the https address of an authorization server, got {issuer!r}")
