"""How to log in at a server: the ``auth`` object of its configuration, and the application's part in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from gaia.runtime.redaction import basic_credentials

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

LOGIN_SECONDS = 300.0
"""How long a person may take to log in."""


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """A server wants a person to log in."""

    server: str
    """Its name."""
    url: str
    """Where the person logs in: to be opened in a browser, and shown whole."""


OnAuthorization = Callable[[AuthorizationRequest], str | None]
"""Takes a person to the authorization server.

Returns the address that the browser was sent back to, if the application received it itself; None if that is to be
waited for on a port of this machine. Runs in a thread of its own, and may wait for the person.
"""


class _Credentials(msgspec.Struct, frozen=True, tag_field="type", rename="camel"):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(client_id={getattr(self, 'client_id', None)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Nothing secret. msgspec's own, which rich shows in tracebacks with local variables, has all fields.
        return [("client_id", getattr(self, "client_id", None))]


class OAuth(_Credentials, frozen=True, kw_only=True, tag="oauth"):
    """A person logs in, in a browser (the authorization code flow with PKCE). The default if nothing is configured.

    Without `client_id` this client makes itself known to the authorization server: by `client_metadata_url` where the
    server takes that, else by dynamic registration. The `repr` shows no secret.
    """

    client_id: str | None = None
    """From registering with the authorization server beforehand."""
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """The https address of a client id metadata document."""
    scopes: list[str] | None = None
    """What to ask for instead of what the server suggests; what a server insists on comes on top."""
    issuer: str | None = None
    """The authorization server to log in at. Without it, the first one that the server names; required with
    `client_secret`, which is sent nowhere else."""
    redirect_uri: str | None = None
    """Where the browser is sent back to; without it, a free port of this machine."""

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret: there is no clientId that it belongs to")
        if self.client_secret is not None and self.issuer is None:
            # Otherwise it would go to any authorization server that the MCP server names.
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
    """The authorization server that gave out the secret: it is sent nowhere else, whatever the server says."""
    scopes: list[str] | None = None
    token_auth: Literal["basic", "post"] = "basic"  # noqa: S105 - the way in which the secret is sent
    """How the authorization server wants the secret: in a header or in the form."""

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
    """The platform that this program runs on vouches for it with a token of its own (RFC 7523, SEP-1933)."""

    client_id: str
    issuer: str
    assertion: str | None = None
    assertion_file: str | None = None
    """Read each time, because platforms replace it."""
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
    """What must not be shown of a login's configuration, also in the form in which it is sent."""
    found = [secret for name in _SECRETS if (secret := getattr(config, name, None))]
    if isinstance(config, (OAuth, ClientCredentials)) and config.client_secret:
        found += basic_credentials(config.client_id or "", config.client_secret)
    return found


def _require_issuer(issuer: str) -> None:
    # A variable is checked when it has been expanded.
    if "${" not in issuer and urlsplit(issuer).scheme not in ("http", "https"):
        raise ValueError(f"issuer: must be the https address of an authorization server, got {issuer!r}")
