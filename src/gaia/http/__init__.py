"""A synchronous HTTP/1.1 client of one keep-alive connection that other threads can interrupt.

It starts no thread, and knows nothing of MCP. The parser is httptools' (llhttp); sockets, TLS, proxies and
limits are here. Needs the extra ``gaia-mcp[http]``.
"""

from gaia.http.connection import HttpConnection
from gaia.http.cookies import Cookies
from gaia.http.errors import (
    ConnectFailed,
    HttpClientError,
    Interrupted,
    NoConnection,
    ProtocolBroken,
    TimedOut,
    TooLong,
    is_own,
)
from gaia.http.proxies import Proxies, basic_authorization
from gaia.http.response import Headers, Response
from gaia.http.settings import HttpSettings
from gaia.http.stream import Deadline
from gaia.http.tls import tls_context
from gaia.http.url import Url, credentials_of

__all__ = [
    "ConnectFailed",
    "Cookies",
    "Deadline",
    "Headers",
    "HttpClientError",
    "HttpConnection",
    "HttpSettings",
    "Interrupted",
    "NoConnection",
    "ProtocolBroken",
    "Proxies",
    "Response",
    "TimedOut",
    "TooLong",
    "Url",
    "basic_authorization",
    "credentials_of",
    "is_own",
    "tls_context",
]
