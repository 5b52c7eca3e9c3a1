"""Errors of a request. Messages name the host, but neither its path nor any sent data."""

from __future__ import annotations


def is_own(error: BaseException) -> bool:
    """Whether code of gaia, or a library that it called, raised this; False for a signal handler that ran meanwhile."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is None or str(place.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OWN


_OWN = frozenset({"gaia", "socket", "ssl"})


class HttpClientError(OSError):
    """The exchange failed: the connection broke, or one of the subclasses says why."""


class ConnectFailed(HttpClientError):
    """There is no connection to the server; no byte of the request was sent."""


class ProtocolBroken(HttpClientError):
    """The response violates HTTP/1.1, or ended early."""


class TimedOut(HttpClientError):
    """The deadline of the request passed."""


class TooLong(HttpClientError):
    """The response is longer than the limits of the client allow."""


class Interrupted(Exception):
    """The request was given up: by `HttpConnection.interrupt`, by `Task.interrupt`, or by its `on_sending`."""
