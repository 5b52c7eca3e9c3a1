"""A synchronous HTTP/1.1 client of one keep-alive connection that other threads can interrupt.

It starts no thread, and knows nothing of MCP. The parser is httptools' (llhttp); sockets, TLS, proxies and
limits are here. Needs the extra ``gaia-mcp[http]``.
"""

from gaia.http_client.connection import HttpConnection
from gaia.http_client.errors import ConnectFailed, HttpClientError, Interrupted, ProtocolBroken, TimedOut, TooLong
from gaia.http_client.response import Headers, Response
from gaia.http_client.settings import HttpSettings
from gaia.http_client.url import Url

__all__ = [
    "ConnectFailed",
    "Headers",
    "HttpClientError",
    "HttpConnection",
    "HttpSettings",
    "Interrupted",
    "ProtocolBroken",
    "Response",
    "TimedOut",
    "TooLong",
    "Url",
]
