"""Responses to a GET: messages that answer no request, or all messages of a server of 2024-11-05."""

from __future__ import annotations

import time
from http import HTTPStatus

from gaia.http.errors import ConnectFailed, HttpClientError, Interrupted, ProtocolBroken
from gaia.http.io_thread import Signal, Task
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import Sleep, Turn
from gaia.mcp.errors import MCPError, NeedsAuthorization
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.http import error_responses
from gaia.mcp.transports.http.event_stream import EventStream
from gaia.mcp.transports.http.http_session import Exchanges
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_NOT_OFFERED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
_MAX_BACKOFF_SECONDS = 60.0
_ANSWER_SECONDS = 1.0
"""How long requests wait for the stream of a server that sends no response before its first event."""
_ENDPOINT_SECONDS = 10.0

_CLOSED = "closed its stream"


class _Stream:
    def __init__(self, channel: Exchanges) -> None:
        self._channel = channel
        self._session = channel.session
        self._connection = channel.new_connection()
        self._closing = False

    def close(self) -> None:
        """Send no more requests. The caller must also interrupt the task of the exchange."""
        self._closing = True

    async def _get(self, last_event_id: str | None) -> Response:
        """Request the stream after the event with this id. Raises `Interrupted`, and as `HttpConnection.request`."""
        headers = self._session.stream_headers(last_event_id)
        return await self._session.send(self._connection, "GET", self._session.url, headers, on_sending=self._check)

    def _check(self) -> None:
        if self._closing:
            raise Interrupted


class ServerStream(_Stream):
    """Notifications and requests of a server of the handshake era (2025-11-25, "Listening for Messages").

    The stream is kept open for as long as the server offers it.
    """

    def __init__(self, channel: Exchanges) -> None:
        super().__init__(channel)
        self._session_id = channel.session.id
        self._opened = False
        self._answered = Signal(channel.io)
        """Set when the server has answered the first GET, or it is known that it does not."""

    async def wait_until_answered(self) -> None:
        """Wait, at most a second, until the server knows the stream. Most servers drop their requests before that."""
        await self._answered.within(_ANSWER_SECONDS)

    async def listen(self) -> None:
        stream = EventStream(self._session.max_message_bytes)
        try:
            while await self._listen(stream):
                await Sleep(time.monotonic() + stream.pause(_MAX_BACKOFF_SECONDS))
        finally:
            self._connection.close()

    async def _listen(self, stream: EventStream) -> bool:
        """Read one response to its end. Returns whether to request another one."""
        try:
            with await self._get(stream.last_id) as response:
                self._answered.set()
                if self._closing or not self._is_offered(response):
                    return False
                if response.status == HTTPStatus.OK:
                    self._opened = True
                    stream.begin(response)
                    while chunk := await response.chunk():
                        for data in stream.messages(chunk):
                            if data is None:
                                await Turn()
                            else:
                                self._channel.message_received(data)
        except Interrupted:
            return False
        except NeedsAuthorization as error:
            # The next call gets the same error. Calls in flight must not be lost because of this stream.
            logger.debug("server_stream_refused", server=self._session.name, error=self._session.redact(error.message))
            return False
        except ConnectFailed as error:
            return not self._closing and not self._channel.unreachable(error)
        except (MCPError, OSError, ValueError) as error:
            logger.debug("server_stream_broken", server=self._session.name, error=self._session.reason(error))
        finally:
            self._answered.set()
        return not self._closing

    def _is_offered(self, response: Response) -> bool:
        """Whether the server offers the stream. Other error statuses, such as a proxy's, may be temporary."""
        if response.status not in _NOT_OFFERED:
            return True
        # A server without GET may answer the very first request with 404.
        if self._opened and error_responses.is_forgotten(response, self._session_id):
            self._channel.session_forgotten()
        else:
            logger.debug("server_stream_not_offered", server=self._session.name, status=response.status)
        return False


class OldServerStream(_Stream):
    """All messages of a server of 2024-11-05, beginning with the URL to which the client sends its messages.

    The end of the stream is the end of the channel, unless the URL never came.
    """

    def __init__(self, channel: Exchanges) -> None:
        super().__init__(channel)
        self._task: Task | None = None
        self._known = Signal(channel.io)
        """Set when the URL is known, or is known to be missing."""
        self._endpoint: Url | None = None
        self._failure: HttpClientError | None = None

    async def endpoint(self) -> Url:
        """Wait for the URL to which the client sends its messages. Raises `HttpClientError`."""
        if self._task is None:
            self._task = self._channel.spawn(self.listen())
        if not await self._known.within(_ENDPOINT_SECONDS):
            raise ConnectFailed("it does not say where to send messages")
        if self._endpoint is None:
            raise self._failure or HttpClientError(_CLOSED)
        return self._endpoint

    def abandon(self) -> None:
        """End the stream, because the server does not speak this revision. On the I/O thread."""
        self.close()
        if self._task is not None:
            self._task.interrupt()

    async def listen(self) -> None:
        try:
            await self._listen()
        except Interrupted:
            pass
        except MCPError as error:
            self._failure = HttpClientError(error.message)
            self._channel.login_required(error)
        except HttpClientError as error:
            self._failure = error
        except (OSError, ValueError) as error:
            self._failure = HttpClientError(self._session.reason(error))
        finally:
            self._connection.close()
            self._known.set()
            if self._endpoint is not None and not self._closing:
                reason = "" if self._failure is None else f": {self._session.reason(self._failure)}"
                self._channel.ended(Ending(cause=f"{_CLOSED}{reason}"))

    async def _listen(self) -> None:
        stream = EventStream(self._session.max_message_bytes)
        with await self._get(None) as response:
            if response.status != HTTPStatus.OK:
                raise ProtocolBroken(f"the server answered {response.status}")
            stream.begin(response)
            while chunk := await response.chunk():
                for event in stream.events(chunk):
                    if self._closing:
                        return
                    if event is None:
                        await Turn()
                    elif event[0] == b"endpoint" and self._endpoint is None:
                        url = self._session.url.join(event[1].decode())
                        # The content of the stream must not decide which server gets the client's headers.
                        if url.origin != self._session.url.origin:
                            raise ProtocolBroken("the server sends messages to another place, which is not trusted")
                        self._endpoint = url
                        self._known.set()
                    elif event[0] == b"message" and event[1]:
                        self._channel.message_received(event[1])
