"""The requests that a server makes over one connection, from their arrival to the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND, Request, encode_error, encode_result
from gaia.mcp.rpc.channel import Frame, Outgoing
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.telemetry.spans import Executor, ServerSpan

logger = get_logger(__name__)

_MAX_WAITING = 256
_MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Number and bytes of responses that may wait to be written. Further ones are dropped, because the server does not
read. A response that waits alone may be longer."""

_MAX_SHOWN = 100


class IncomingRequests:
    """Answers or refuses the requests of a server. Thread-safe.

    The table of requests needs no lock: each operation is one atomic dict operation, and a request belongs to the
    thread that pops it.
    """

    def __init__(
        self,
        on_request: Callable[[Request], bool],
        send: Callable[[Outgoing], bool],
        headers_for: Callable[[int | None], Mapping[str, str] | None],
        observer: Observer,
        executor: Executor | None,
    ) -> None:
        """`on_request` gets each request except `ping`. True means that the request will be answered; False refuses it.

        `send` writes a response as soon as the server reads; False if it will not be written. `headers_for` returns the
        headers of a response to a request that arrived on the stream of a call.
        """
        self._on_request = on_request
        self._send = send
        self._headers_for = headers_for
        self._backlog = _Backlog()
        self._warned = False
        """Whether dropped responses were logged. Without a lock, so two threads may both log them."""
        self._observer = observer
        self._executor = executor
        self._served: dict[int, ServerSpan] = {}
        """Requests that are not answered yet, by the identity of the message: a server may use an id twice."""

    def received(self, request: Request) -> None:
        """For the reader. Answers `ping`; refuses a method that the client has not declared."""
        served = self._observer.serve(request.method, request.params, request.id, self._executor)
        self._served[id(request)] = served
        if request.method == "ping":
            self.answer(request, {})
            return
        with served.current():
            known = self._on_request(request)
        if not known:
            self.refuse(request, METHOD_NOT_FOUND, f"the client does not offer {request.method[:_MAX_SHOWN]}")

    def answer(self, request: Request, result: dict[str, Any]) -> None:
        """Raises ValueError if `result` cannot be expressed in JSON."""
        self._respond(request, encode_result(request.id, result))
        self._ended(id(request))

    def refuse(self, request: Request, code: int, message: str) -> None:
        self._respond(request, encode_error(request.id, code, message))
        self._ended(id(request), code)

    def withdraw(self, request: Request) -> None:
        self._ended(id(request), error_type="cancelled")

    def close(self) -> None:
        for identity in list(self._served):
            self._ended(identity, error_type="connection_closed")

    def _respond(self, request: Request, frame: bytes) -> None:
        if self._backlog.add(len(frame)):
            answer = _Answer(frame, headers=self._headers_for(request.call_id), backlog=self._backlog)
            if self._send(answer):
                return
            self._backlog.remove(len(frame))
        if not self._warned:
            self._warned = True
            logger.warning("answers_dropped", server=self._observer.server, method=request.method[:_MAX_SHOWN])

    def _ended(self, identity: int, code: int | None = None, error_type: str | None = None) -> None:
        served = self._served.pop(identity, None)
        if served is not None:
            served.answered(code, error_type)


class _Backlog:
    """Counts the responses that wait to be written. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._count = 0
        self._size = 0

    def add(self, size: int, *, always: bool = False) -> bool:
        with self._lock:
            is_full = self._count >= _MAX_WAITING or (self._count > 0 and self._size + size > _MAX_WAITING_BYTES)
            if is_full and not always:
                return False
            self._count += 1
            self._size += size
            return True

    def remove(self, size: int) -> None:
        with self._lock:
            self._count -= 1
            self._size -= size


class _Answer(Frame, frozen=True):
    """A response in the backlog, which it leaves when it is written."""

    backlog: _Backlog | None = None

    def begin_write(self) -> bool:
        if self.backlog is not None:
            self.backlog.remove(len(self.frame))
        return True

    def undo_write(self) -> None:
        # Nothing was written. The response waits again, even if the backlog is full by now.
        if self.backlog is not None:
            self.backlog.add(len(self.frame), always=True)
