"""Threads that read the response to a GET: what is not an answer, or all messages of a server of 2024-11-05."""

from __future__ import annotations

from abc import ABC, abstractmethod
from http import HTTPStatus

from gaia.http import (
    ConnectFailed,
    HttpClientError,
    HttpConnection,
    Interrupted,
    ProtocolBroken,
    Response,
    Url,
)
from gaia.mcp.errors import MCPError, NeedsAuthorization
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.http import error_responses
from gaia.mcp.transports.http.event_stream import EventStream
from gaia.mcp.transports.http.http_session import HttpSession, HttpSink
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_NOT_OFFERED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
_MAX_BACKOFF_SECONDS = 60.0
_ANSWER_SECONDS = 1.0
"""How long requests wait for the stream of a server that sends no response before its first event."""
_ENDPOINT_SECONDS = 10.0
"""How long a server gets to say where messages are to be sent."""

_CLOSED = "closed its stream"


class _StreamThread(ABC):
    """A thread with a connection of its own. It is not started yet."""

    def __init__(self, session: HttpSession, sink: HttpSink, connection: HttpConnection) -> None:
        self._session = session
        self._sink = sink
        self._connection = connection
        self._closing = Latch()
        self._thread = EngineThread(self._run, f"mcp-{session.name}-http-events", self._failed)

    def interrupt(self) -> None:
        """Have the thread end soon, whatever it waits for. From any thread."""
        self._closing.open()
        self._connection.interrupt()

    def join(self, seconds: float) -> bool:
        """False if the thread is still there after `seconds`."""
        if self._thread.ident is None:
            self._connection.close()
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _failed(self) -> None:
        if not self._closing.is_open:
            self._sink.ended(Ending(cause="could not be listened to"))

    @abstractmethod
    def _run(self) -> None:
        """What the thread does; it closes the connection in the end."""

    def _get(self, last_event_id: str | None) -> Response:
        """Ask for the stream after the event with this id. Raises `Interrupted`, and as `HttpConnection.request`."""
        headers = self._session.stream_headers(last_event_id)
        return self._session.send(self._connection, "GET", self._session.url, headers, on_sending=self._check)

    def _check(self) -> None:
        if self._closing.is_open:
            raise Interrupted


class ServerStream(_StreamThread):
    """Notifications and requests of a server of the handshake era (2025-11-25, "Listening for Messages").

    The stream is kept open for as long as the server offers it.
    """

    def __init__(self, session: HttpSession, sink: HttpSink, connection: HttpConnection) -> None:
        """Start to listen. If no thread can be started, that is not done: the stream is optional."""
        super().__init__(session, sink, connection)
        self._session_id = session.id
        self._opened = False
        self._answered = Latch()
        """Set when the server has answered the first GET, or it is known that it does not."""
        try:
            self._thread.start()
        except RuntimeError:
            self._answered.open()

    def wait_until_answered(self) -> None:
        """Wait until the server knows of the stream, or does not offer one, a second at most.

        A request of the server that a tool asks before that has no stream to go to, and the usual servers drop it.
        """
        self._answered.wait(_ANSWER_SECONDS)

    def interrupt(self) -> None:
        super().interrupt()
        self._answered.open()

    def _run(self) -> None:
        stream = EventStream(self._session.max_message_bytes)
        try:
            while self._listen(stream) and not self._closing.wait(stream.pause(_MAX_BACKOFF_SECONDS)):
                pass
        finally:
            self._connection.close()

    def _listen(self, stream: EventStream) -> bool:
        """Read one response to its end. Whether it is of use to ask again."""
        try:
            with self._get(stream.last_id) as response:
                self._answered.open()
                if self._closing.is_open or not self._is_offered(response):
                    return False
                if response.status == HTTPStatus.OK:
                    self._opened = True
                    for data in stream.messages(response):
                        self._sink.message_received(data)
        except Interrupted:
            return False
        except NeedsAuthorization as error:
            # The next call finds out, too; those that are under way must not be lost for the sake of this.
            logger.debug("server_stream_refused", server=self._session.name, error=self._session.redact(error.message))
            return False
        except ConnectFailed as error:
            return not self._closing.is_open and not self._sink.unreachable(error)
        except (MCPError, OSError, ValueError) as error:
            logger.debug("server_stream_broken", server=self._session.name, error=self._session.reason(error))
        finally:
            self._answered.open()
        return not self._closing.is_open

    def _is_offered(self, response: Response) -> bool:
        """Any other status, such as that of a proxy without a server behind it, may be another one the next time."""
        if response.status not in _NOT_OFFERED:
            return True
        # The very first request may be answered with 404 by a server that knows no GET.
        if self._opened and error_responses.is_forgotten(response, self._session_id):
            self._sink.session_forgotten()
        else:
            logger.debug("server_stream_not_offered", server=self._session.name, status=response.status)
        return False


class OldServerStream(_StreamThread):
    """All that a server of 2024-11-05 says; the URL to which it wants messages sent comes first.

    The thread starts when that URL is first asked for. The end of the stream is the end of the channel, unless the URL
    never came.
    """

    def __init__(self, session: HttpSession, sink: HttpSink, connection: HttpConnection) -> None:
        super().__init__(session, sink, connection)
        self._known = Latch()
        """Set when the URL is known, or when it is known that there is none."""
        self._endpoint: Url | None = None
        self._failure: HttpClientError | None = None
        self._starting = reentrant_lock()

    def endpoint(self) -> Url:
        """Where messages are sent, waiting for the server to say so. Raises `HttpClientError`."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()
        if not self._known.wait(_ENDPOINT_SECONDS):
            raise ConnectFailed("it does not say where to send messages")
        if self._endpoint is None:
            raise self._failure or HttpClientError(_CLOSED)
        return self._endpoint

    def interrupt(self) -> None:
        super().interrupt()
        self._known.open()

    def _run(self) -> None:
        try:
            self._listen()
        except Interrupted:
            pass
        except MCPError as error:
            self._failure = HttpClientError(error.message)
            self._sink.login_required(error)
        except HttpClientError as error:
            self._failure = error
        except (OSError, ValueError) as error:
            self._failure = HttpClientError(self._session.reason(error))
        finally:
            self._connection.close()
            self._known.open()
            if self._endpoint is not None and not self._closing.is_open:
                reason = "" if self._failure is None else f": {self._session.reason(self._failure)}"
                self._sink.ended(Ending(cause=f"{_CLOSED}{reason}"))

    def _listen(self) -> None:
        stream = EventStream(self._session.max_message_bytes)
        with self._get(None) as response:
            if response.status != HTTPStatus.OK:
                raise ProtocolBroken(f"the server answered {response.status}")
            for name, data in stream.events(response):
                if self._closing.is_open:
                    return
                if name == b"endpoint" and self._endpoint is None:
                    self._endpoint = self._join(data.decode())
                    self._known.open()
                elif name == b"message" and data:
                    self._sink.message_received(data)

    def _join(self, reference: str) -> Url:
        url = self._session.url.join(reference)
        # What is written on the stream must not decide which server gets our headers.
        if url.origin != self._session.url.origin:
            raise ProtocolBroken("the server sends messages to another place, which is not trusted")
        return url
