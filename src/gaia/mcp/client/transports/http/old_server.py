"""Servers of revision 2024-11-05: one stream for all that the server says, and POSTs that are not answered."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx2

from gaia.log import get_logger
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.transports.http import error_responses
from gaia.mcp.client.transports.http.event_stream import EventStream
from gaia.mcp.client.transports.http.http_connection import Interrupted
from gaia.mcp.client.transports.http.stream_reader import StreamReader
from gaia.mcp.errors import MCPError

if TYPE_CHECKING:
    from gaia.mcp.client.transports.http.channel import HttpChannel

__all__ = ["OldServer"]

logger = get_logger(__name__)

_ENDPOINT_SECONDS = 10.0
"""How long a server gets to say where messages are to be sent."""

_CLOSED = "closed its stream"


class OldServer(StreamReader):
    """The stream, and the address that is the first thing on it. The thread starts when somebody wants to know that.

    The end of the stream is the end of the channel, unless the stream never had an address.
    """

    def __init__(self, channel: HttpChannel) -> None:
        super().__init__(channel)
        self._known = threading.Event()
        """Set when the address is known, or when it is known that there is none."""
        self._endpoint: httpx2.URL | None = None
        self._failure: httpx2.TransportError | None = None
        self._starting = threading.Lock()

    def is_there(self) -> bool:
        """Whether the server speaks this transport."""
        try:
            self.endpoint()
        except httpx2.TransportError as error:
            logger.debug(
                "no_old_server", server=self._channel.name, error=self._channel.redact(error_responses.reason(error))
            )
            return False
        return True

    def endpoint(self) -> httpx2.URL:
        """Where messages are sent, waiting for the server to say so. Raises `httpx2.TransportError`."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()
        if not self._known.wait(_ENDPOINT_SECONDS):
            raise httpx2.ReadTimeout("it does not say where to send messages")
        if self._endpoint is None:
            raise self._failure or httpx2.ReadError(_CLOSED)
        return self._endpoint

    def interrupt(self) -> None:
        super().interrupt()
        self._known.set()

    def _run(self) -> None:
        try:
            self._listen()
        except Interrupted:
            pass
        except MCPError as error:
            self._failure = httpx2.ReadError(error.message)
            self._channel.is_locked_out(error)
        except httpx2.TransportError as error:
            self._failure = error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ValueError) as error:
            self._failure = httpx2.ReadError(error_responses.reason(error))
        finally:
            self._http_connection.close()
            self._known.set()
            if self._endpoint is not None and not self._closing.is_set():
                told = (
                    "" if self._failure is None else f": {self._channel.redact(error_responses.reason(self._failure))}"
                )
                self._channel.end(Ending(cause=f"{_CLOSED}{told}"))

    def _listen(self) -> None:
        stream = EventStream(self._channel.max_message_bytes)
        with self._get(None) as response:
            if response.status_code != HTTPStatus.OK:
                raise httpx2.RemoteProtocolError(f"the server answered {response.status_code}")
            for name, data in stream.events(response):
                if self._closing.is_set():
                    return
                if name == "endpoint" and self._endpoint is None:
                    self._endpoint = self._address(data.decode())
                    self._known.set()
                elif name == "message" and data:
                    self._channel.received(data)

    def _address(self, text: str) -> httpx2.URL:
        address = self._channel.url.join(text)
        # Whoever may write on the stream must not decide who gets our headers.
        if address.origin != self._channel.url.origin:
            raise httpx2.RemoteProtocolError("the server sends messages to another place, which is not trusted")
        return address
