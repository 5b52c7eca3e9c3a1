"""The stream on which a server of the handshake era says what is no answer (2025-11-25, "Listening for Messages")."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx2

from gaia.log import get_logger
from gaia.mcp.client.transports.http import error_responses
from gaia.mcp.client.transports.http.event_stream import EventStream
from gaia.mcp.client.transports.http.http_connection import Interrupted
from gaia.mcp.client.transports.http.stream_reader import StreamReader
from gaia.mcp.errors import MCPError, NeedsAuthorization

if TYPE_CHECKING:
    from gaia.mcp.client.transports.http.channel import HttpChannel

__all__ = ["ServerStream"]

logger = get_logger(__name__)

_MAX_WAIT_SECONDS = 60.0


class ServerStream(StreamReader):
    """A thread that keeps the stream open, for as long as the server offers it."""

    def __init__(self, channel: HttpChannel) -> None:
        """Start to listen. What cannot be done for want of threads is not done: the stream is optional."""
        super().__init__(channel)
        self._session = channel.session_id
        self._opened = False
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def _run(self) -> None:
        stream = EventStream(self._channel.max_message_bytes)
        wait = 0.0
        try:
            while not self._closing.wait(wait):
                heard = self._listen(stream)
                if heard is None:
                    return
                # A server that only ever closes the stream is not asked more and more often.
                wait = stream.retry if heard else min(max(stream.retry, wait * 2), _MAX_WAIT_SECONDS)
        finally:
            self._http_connection.close()

    def _listen(self, stream: EventStream) -> bool | None:
        """Read one response to its end. Whether anything came; None if it is of no use to ask again."""
        channel, heard = self._channel, False
        try:
            with self._get(stream.last_id) as response:
                if self._closing.is_set() or not self._is_offered(response):
                    return None
                self._opened = True
                for data in stream.messages(response):
                    heard = True
                    channel.received(data)
        except Interrupted:
            return None
        except NeedsAuthorization as error:
            # The next call finds out, too; those that are under way must not be lost for the sake of this.
            logger.debug("server_stream_refused", server=channel.name, error=channel.redact(error.message))
            return None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if not self._closing.is_set():
                channel.unreachable(error)
            return None
        except (httpx2.HTTPError, httpx2.StreamError, MCPError, OSError, ValueError) as error:
            logger.debug(
                "server_stream_broken", server=channel.name, error=channel.redact(error_responses.reason(error))
            )
        return None if self._closing.is_set() else heard

    def _is_offered(self, response: httpx2.Response) -> bool:
        if response.status_code == HTTPStatus.OK:
            return True
        # The very first request may be answered with 404 by a server that knows no GET.
        if self._opened and error_responses.is_forgotten(response, self._session):
            self._channel.session_forgotten()
        else:
            logger.debug("server_stream_not_offered", server=self._channel.name, status=response.status_code)
        return False
