"""`HttpTransport`, for servers over HTTP. The modules that need the extra are imported when a server is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from gaia.http.request import HttpSettings, encode_head
from gaia.http.streams import tls_context
from gaia.http.url import Proxies, Url, basic_authorization, credentials_of
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.framing import DEFAULT_MAX_LINE_BYTES
from gaia.mcp.protocol.request_headers import InvalidMark, RequestHeaders
from gaia.mcp.rpc.channel import ChannelListener
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.transports.base import Authorization, RequestAuthorization, StandaloneTransport
from gaia.runtime.extras import not_installed
from gaia.runtime.log import enable_debug, get_logger
from gaia.runtime.redaction import Redactor, secret_headers, secret_url_parts, url_credentials
from gaia.runtime.threads import DaemonPool

if TYPE_CHECKING:
    import ssl

    import httpx2

    from gaia.mcp.transports.http.channel import HttpChannel

logger = get_logger(__name__)

_MAX_LOGIN_THREADS = 4
_LOGIN_IDLE_SECONDS = 1.0
_MAX_SHOWN = 100

_OURS = frozenset(
    {"accept", "accept-encoding", "content-length", "content-type", "mcp-protocol-version", "mcp-session-id"}
)
"""Headers that the transport sets. Configurations for other clients contain some; the transport's replace them."""

Authorize = Callable[[], "RequestAuthorization | httpx2.Auth | None"]


class HttpTransport(StandaloneTransport):
    """Talks to an MCP server at a URL, over Streamable HTTP or the older HTTP with SSE (2024-11-05).

    `MCPClient` supervises it: it tries an unreachable server again later, and opens a new session if the server has
    forgotten the old one. Used by itself it has the four methods of `MCPTransport`; the first request must then be
    `initialize`, after whose answer it sends `notifications/initialized`.

    Proxies and certificates come from the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``). Needs the
    extra ``gaia-mcp[http]``.
    """

    network_transport = "tcp"
    takes_headers = True

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
        debug: bool = False,
        *,
        old: bool = False,
        auth: RequestAuthorization | httpx2.Auth | Authorize | None = None,
        max_message_bytes: int = DEFAULT_MAX_LINE_BYTES,
        max_pending: int = 1024,
        max_connections: int = 100,
        expand: Callable[[], tuple[str, Mapping[str, str] | None, Sequence[str]]] | None = None,
    ) -> None:
        """`headers` are sent with every request. `timeout` is in seconds.

        `old` says that the server speaks HTTP with SSE (2024-11-05); by default the transport finds out. `auth` is a
        `ServerAuthorization` or an authorization of httpx2, or a function that makes one whenever the server is opened.
        `max_connections` bounds the concurrent requests; more wait. `expand`, if given, is called at each opening. It
        returns the URL and the headers to use instead, with variables filled in, and further values that must not be
        shown.

        Raises ValueError for a URL or a header that cannot be used, unless `expand` provides them.
        """
        if debug:
            enable_debug()
        super().__init__(timeout, max_pending)
        self.url = url
        self.headers = None if headers is None else dict(headers)
        self.debug = debug
        self._old = old
        self._auth = auth
        if isinstance(given := cast("object", auth), Authorization):
            self.authorization = given
        self._max_message_bytes = max_message_bytes
        self._max_connections = max_connections
        self._expand = expand or (lambda: (self.url, self.headers, ()))
        self._tls: ssl.SSLContext | None = None
        if expand is None:
            Url.parse(url)
            _checked_headers(self.headers or {})

    def __repr__(self) -> str:
        # Headers, paths and queries may hold secrets.
        try:
            url = Url.parse(self.url)
        except ValueError:
            origin = "?"
        else:
            origin = f"{url.scheme}://{url.authority}"
        return f"HttpTransport({origin!r}, connected={self.is_connected()})"

    @property
    def network(self) -> dict[str, str | int]:
        known: dict[str, str | int] = {**super().network, "network.protocol.name": "http"}
        try:
            url = Url.parse(self._expand()[0])
        except ValueError:
            # `open` reports the error.
            return known
        return known | {"server.address": url.host, "server.port": url.port}

    @property
    def _label(self) -> str:
        return urlsplit(self.url).hostname or "http"

    def open(self, listener: ChannelListener, name: str) -> HttpChannel:
        try:
            from gaia.http.connection import HttpConnection
            from gaia.mcp.transports.http.authorized_requests import AuthorizedRequests
            from gaia.mcp.transports.http.channel import HttpChannel
            from gaia.mcp.transports.http.http_session import HttpSession
        except ModuleNotFoundError as error:
            lack = not_installed("http", str(error.name))
            raise ConfigError(f"a server over HTTP, such as {name!r}, needs {lack}") from error
        url, headers, secrets = self._expand()
        try:
            checked = _checked_headers(headers or {})
            # The URL without user and password, which go into a header, so no message and no log line shows them.
            target = Url.parse(url)
        except ValueError as error:
            raise ConfigError(f"server {name!r}: {error}") from error
        proxy_secrets = url_credentials(os.environ.values())
        try:
            settings = self._settings(url, checked)
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"server {name!r}: what the environment says of proxies and certificates (HTTP_PROXY, HTTPS_PROXY, "
                f"ALL_PROXY, SSL_CERT_FILE, SSL_CERT_DIR) cannot be used: {Redactor(proxy_secrets)(str(error))}"
            ) from error
        auth = self._auth() if callable(self._auth) else self._auth
        session = HttpSession(
            name,
            target,
            redact=self._redactor([*secret_headers(checked), *secret_url_parts(url), *proxy_secrets, *secrets]),
            max_message_bytes=self._max_message_bytes,
            request_headers=RequestHeaders(partial(_log_excluded, name)),
        )
        if auth is not None:
            session.login_threads = DaemonPool(
                f"mcp-{name}-http-login", _MAX_LOGIN_THREADS, idle_seconds=_LOGIN_IDLE_SECONDS, is_engine=True
            )
            session.send = AuthorizedRequests(auth, session.login_threads)
        try:
            channel = HttpChannel(
                session,
                partial(HttpConnection, settings),
                listener,
                max_pending=self._max_pending,
                max_connections=self._max_connections,
                idle_seconds=settings.idle_seconds,
                old=self._old,
            )
        except RuntimeError as error:
            raise StartFailed(f"server {name!r} cannot be reached: {error}") from error
        self._channel = channel
        return channel

    def _redactor(self, secrets: list[str]) -> Callable[[str], str]:
        authorization = self.authorization
        if authorization is None:
            return Redactor(secrets)

        state: tuple[list[str], Redactor] = ([], Redactor(secrets))

        # Tokens come and go. The pair is replaced as a whole, because several threads may run this.
        def redact(text: str) -> str:
            nonlocal state
            made_of, redactor = state
            tokens = list(authorization.secrets)
            if tokens != made_of:
                redactor = Redactor([*secrets, *tokens])
                state = (tokens, redactor)
            return redactor(text)

        return redact

    def _settings(self, url: str, headers: Mapping[str, str]) -> HttpSettings:
        """Raises ValueError and OSError for unusable settings of the environment."""
        credentials = credentials_of(url)
        if credentials is not None and self._auth is None:
            headers = {**headers, "Authorization": basic_authorization(*credentials)}
        if self._tls is None:
            # Reading the certificates takes a tenth of a second.
            self._tls = tls_context()
        return HttpSettings(
            headers={"User-Agent": "gaia-mcp", **headers},
            tls=self._tls,
            proxies=Proxies.from_environment(),
            connect_seconds=min(10.0, self.timeout),
            # On a stream each message has the same limit.
            max_bytes=self._max_message_bytes,
        )

    def _answered(self, connection: Connection, method: str, result: dict[str, Any]) -> None:
        if method == "initialize":
            version = result.get("protocolVersion")
            connection.set_protocol_version(NegotiatedProtocol(version if isinstance(version, str) else None))
            connection.notify("notifications/initialized")


def _log_excluded(server: str, tool: str, reason: InvalidMark) -> None:
    logger.warning("tool_excluded", server=server, tool=tool[:_MAX_SHOWN], reason=str(reason))


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    checked = {name: value.strip() for name, value in headers.items() if name.lower() not in _OURS}
    encode_head("GET", "/", checked)
    return checked
