"""The SDK's OAuth providers, made from gaia's configuration and the stored login. Importing this imports the SDK.

The providers override two private methods of the SDK, `_perform_authorization` and `_select_authorization_server`. A
test fails when a release changes them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import (
    JWT_BEARER_GRANT_TYPE,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, Field, field_serializer

from gaia.mcp.authorization.config import ClientCredentials, OAuth, PrivateKeyJwt, WorkloadIdentity
from gaia.mcp.authorization.token_file import Login, TokenFile
from gaia.runtime.private_files import keep_private

# The SDK logs each failure with a traceback. gaia reports failures itself; an application can still receive the log.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())

_MAX_SECONDS = 10 * 365 * 24 * 3600
"""The longest accepted lifetime of a token, because the server's number may be too large for a time."""

_UNUSED_REDIRECT_URI = "http://127.0.0.1/callback"

M = TypeVar("M", bound=BaseModel)

OnRedirect = Callable[[str], Awaitable[None]]
OnCallback = Callable[[], Awaitable[AuthorizationCodeResult]]


class LoginStorage:
    """The SDK's token storage. It writes the results of one flow to the file at once."""

    def __init__(self, file: TokenFile, *, keeps_token: bool = False) -> None:
        """`keeps_token`: the token in the file is still valid, and stays until there is a new one."""
        self._file = file
        self._keeps_token = keeps_token
        self.provider: OAuthClientProvider | None = None
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.login: Login | None = None
        """The login that was written with the new token; None before."""

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.login = self._login(tokens)
        self._file.write(self.login)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if not self._keeps_token:
            # An unfinished login must not register again the next time.
            self._file.write(self._login(None, client_info))

    def _login(self, tokens: OAuthToken | None, client_info: OAuthClientInformationFull | None = None) -> Login:
        assert self.provider is not None, "set before the flow begins"
        context = self.provider.context
        metadata = context.oauth_metadata
        login = Login(
            server=context.server_url,
            issuer=None if metadata is None else str(metadata.issuer),
            client=_json(client_info or context.client_info),
            redirect_uri=next((str(uri) for uri in context.client_metadata.redirect_uris or ()), None),
            authorization_server=_json(metadata),
            protected_resource=_json(context.protected_resource_metadata),
        )
        if tokens is None:
            return login
        return msgspec.structs.replace(
            login,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=tokens.scope,
            expires_at=None if tokens.expires_in is None else time.time() + min(tokens.expires_in, _MAX_SECONDS),
        )


class _Registration(OAuthClientMetadata):
    """The client's registration. Some servers later refuse scopes that are missing in it."""

    scope_override: str | None = Field(default=None, exclude=True)

    @field_serializer("scope")
    def _all_scopes(self, scope: str | None) -> str | None:
        return union_scopes(self.scope_override, scope)


class _Scoped(OAuthClientProvider):
    """Requests `scope_override`, if it is set, instead of the server's suggested scopes."""

    scope_override: str | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        if self.scope_override is not None:
            self.context.client_metadata.scope = self.scope_override
        return await super()._perform_authorization()


class _ClientCredentialsProvider(_Scoped, ClientCredentialsOAuthProvider):
    pass


class _PrivateKeyJwtProvider(_Scoped, PrivateKeyJWTOAuthProvider):
    pass


class PersonProvider(_Scoped):
    """The authorization code flow, continued from an earlier login. It gives the SDK the parts that the SDK forgets."""

    def __init__(
        self,
        config: OAuth,
        url: str,
        login: Login | None,
        storage: LoginStorage,
        *,
        expired: bool = False,
        redirect_uri: str | None = None,
        scope: str | None = None,
        on_redirect: OnRedirect | None = None,
        on_callback: OnCallback | None = None,
    ) -> None:
        """Renews a login whose token is `expired`. With `on_redirect` and `on_callback` it can also make a new login.

        `scope` replaces the server's suggestion.
        """
        if login is not None and config.issuer is not None and not issuers_match(login.issuer or "", config.issuer):
            # Another authorization server issued this login, and must not see the configured secret.
            login = None
        uri = redirect_uri or (login is not None and login.redirect_uri) or _UNUSED_REDIRECT_URI
        metadata = _Registration.model_validate(
            {"redirect_uris": [uri], "client_name": "gaia-mcp", "scope_override": scope}
        )
        super().__init__(url, metadata, storage, on_redirect, on_callback, config.client_metadata_url)
        self.scope_override = scope
        self._config = config
        storage.provider, context = self, self.context
        if login is not None:
            context.oauth_metadata = _from_json(OAuthMetadata, login.authorization_server)
            context.protected_resource_metadata = _from_json(ProtectedResourceMetadata, login.protected_resource)
            if context.protected_resource_metadata is not None:
                context.auth_server_url = login.issuer
            storage.client = _from_json(OAuthClientInformationFull, login.client)
            if login.access_token is not None:
                storage.tokens = OAuthToken(
                    access_token=login.access_token, refresh_token=login.refresh_token, scope=login.scope
                )
                context.token_expiry_time = 1.0 if expired else None
        if config.client_id is not None:
            storage.client = OAuthClientInformationFull(
                client_id=config.client_id,
                client_secret=config.client_secret,
                token_endpoint_auth_method=self._secret_method(),
                issuer=config.issuer,
            )

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self._config.issuer
        if issuer is None:
            return advertised[0]
        for server in advertised:
            if issuers_match(server, issuer):
                return server
        raise OAuthFlowError(
            f"the server wants a login at {', '.join(advertised)}, and its configuration insists on {issuer}"
        )

    async def _perform_authorization(self) -> httpx2.Request:
        self._check_authorization_server()
        if self._config.client_id is not None and self.context.client_info is not None:
            self.context.client_info.token_endpoint_auth_method = self._secret_method()
        return await super()._perform_authorization()

    def _check_authorization_server(self) -> None:
        metadata, named = self.context.oauth_metadata, self._config.issuer or self.context.auth_server_url
        if metadata is None:
            if named is not None:
                # Otherwise the SDK would continue at the MCP server's own address, as servers of 2025-03-26 expect, and
                # send it secrets meant only for the authorization server.
                raise OAuthFlowError(f"the metadata of the authorization server {named} cannot be had")
            return
        if self._config.issuer is not None and not issuers_match(str(metadata.issuer), self._config.issuer):
            raise OAuthFlowError(
                f"the server wants a login at {metadata.issuer}, and its configuration insists on {self._config.issuer}"
            )
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            # "MCP clients MUST refuse to proceed": without PKCE, others could use an intercepted code.
            raise OAuthFlowError(
                f"the authorization server {metadata.issuer} does not say that it supports PKCE (S256 in "
                "code_challenge_methods_supported), without which a login is not safe"
            )

    def _secret_method(self) -> str | None:
        """The way to send the configured secret that the authorization server supports, in the header if possible."""
        if self._config.client_secret is None:
            return "none"
        metadata = self.context.oauth_metadata
        methods = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
        return "client_secret_basic" if not methods or "client_secret_basic" in methods else "client_secret_post"


class _WorkloadIdentityProvider(_Scoped):
    """The grant of RFC 7523, section 2.1: the platform's token is the authorization. A failure is not retried."""

    def __init__(self, config: WorkloadIdentity, url: str, storage: LoginStorage) -> None:
        metadata = OAuthClientMetadata(
            redirect_uris=None,
            grant_types=[JWT_BEARER_GRANT_TYPE],
            token_endpoint_auth_method="none",  # noqa: S106 - there is no secret
        )
        super().__init__(url, metadata, storage)
        self._config = config
        storage.client = OAuthClientInformationFull(
            client_id=config.client_id,
            grant_types=[JWT_BEARER_GRANT_TYPE],
            token_endpoint_auth_method="none",  # noqa: S106 - there is no secret
        )

    def _select_authorization_server(self, advertised: list[str]) -> str:
        return next((one for one in advertised if issuers_match(one, self._config.issuer)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        if self.scope_override is not None:
            self.context.client_metadata.scope = self.scope_override
        metadata = self.context.oauth_metadata
        if metadata is None or not issuers_match(str(metadata.issuer), self._config.issuer):
            raise OAuthFlowError(f"the server does not name the configured authorization server {self._config.issuer}")
        form: dict[str, Any] = {
            "grant_type": JWT_BEARER_GRANT_TYPE,
            "assertion": self._assertion(),
            "client_id": self._config.client_id,
            "resource": self.context.get_resource_url(),
        }
        if self.context.client_metadata.scope:
            form["scope"] = self.context.client_metadata.scope
        return httpx2.Request("POST", str(metadata.token_endpoint), data=form)

    def _assertion(self) -> str:
        if self._config.assertion_file is None:
            return self._config.assertion or ""
        file = Path(self._config.assertion_file).expanduser()
        keep_private(file)
        try:
            return file.read_text("utf-8").strip()
        except OSError as error:
            raise OAuthFlowError(f"{self._config.assertion_file}: cannot be read: {error.strerror or error}") from error


def credentials_provider(
    config: ClientCredentials | PrivateKeyJwt | WorkloadIdentity, url: str, storage: LoginStorage
) -> OAuthClientProvider:
    provider: _Scoped
    if isinstance(config, WorkloadIdentity):
        provider = _WorkloadIdentityProvider(config, url, storage)
    elif isinstance(config, PrivateKeyJwt):
        signer = SignedJWTParameters(
            issuer=config.client_id,
            subject=config.client_id,
            signing_key=config.private_key,
            signing_algorithm=config.algorithm,
        )
        assertions = signer.create_assertion_provider()
        provider = _PrivateKeyJwtProvider(url, storage, config.client_id, assertions, issuer=config.issuer)
    else:
        provider = _ClientCredentialsProvider(
            url,
            storage,
            config.client_id,
            config.client_secret,
            "client_secret_basic" if config.token_auth == "basic" else "client_secret_post",  # noqa: S105 - no secret
            issuer=config.issuer,
        )
    provider.scope_override = " ".join(config.scopes or []) or None
    storage.provider = provider
    return provider


def _json(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _from_json(kind: type[M], document: dict[str, Any] | None) -> M | None:
    return None if document is None else kind.model_validate(document)
