"""What goes wrong with a request. Messages name the host, and neither its path nor anything that was sent."""

from __future__ import annotations

__all__ = ["ConnectFailed", "HttpClientError", "Interrupted", "ProtocolBroken", "TimedOut", "TooLong"]


class HttpClientError(OSError):
    """The exchange came to nothing: the connection broke, or one of the classes below."""


class ConnectFailed(HttpClientError):
    """There is no connection to the server: nothing of the request was sent."""


class ProtocolBroken(HttpClientError):
    """What came is no response by the rules of HTTP/1.1, or ended early."""


class TimedOut(HttpClientError):
    """The deadline of the request passed."""


class TooLong(HttpClientError):
    """The response is longer than the limits of the client allow."""


class Interrupted(Exception):
    """The request was given up: by `HttpConnection.interrupt`, or by an `on_sending` that raises this."""
