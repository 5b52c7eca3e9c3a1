"""What goes wrong with a request. Messages name the host, and neither its path nor anything that was sent."""

from __future__ import annotations


def is_own(error: BaseException) -> bool:
    """Whether code of gaia has raised it, or what that called, and not a signal handler that ran meanwhile."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is None or str(place.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OWN


_OWN = frozenset({"gaia", "socket", "ssl"})


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
    """The request was given up: by `HttpConnection.interrupt`, by `Task.interrupt`, or by its `on_sending`."""
