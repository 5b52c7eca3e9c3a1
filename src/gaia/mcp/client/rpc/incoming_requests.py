"""Requests that a server makes over one connection, from their arrival to the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gaia.mcp.client.observation.request_spans import Executor, Observer
from gaia.mcp.client.protocol.messages import METHOD_NOT_FOUND, Request, encode_error, encode_result
from gaia.telemetry.spans import ServerSpan

__all__ = ["IncomingRequests"]


class IncomingRequests:
    """Thread-safe.

    The table needs no lock: each of its operations is one atomic dict operation, and a request belongs to the thread
    that pops it.
    """

    def __init__(
        self,
        on_request: Callable[[Request], bool],
        respond: Callable[[bytes], None],
        observer: Observer,
        executor: Executor | None,
    ) -> None:
        """`on_request` is told of each request but `ping`. True says that it will be answered; False refuses it.

        `respond` sends an encoded response.
        """
        self._on_request = on_request
        self._respond = respond
        self._observer = observer
        self._executor = executor
        self._served: dict[int, ServerSpan] = {}
        """Requests that are not answered yet, by the identity of the message: an id may come twice."""

    def received(self, request: Request) -> None:
        """For the reader. Every client answers `ping`; a method that we have not declared is "method not found"."""
        served = self._observer.serve(request.method, request.params, request.id, self._executor)
        self._served[id(request)] = served
        if request.method == "ping":
            self.answer(request, {})
            return
        with served.current():
            known = self._on_request(request)
        if not known:
            self.refuse(request, METHOD_NOT_FOUND, f"the client does not offer {request.method}")

    def answer(self, request: Request, result: dict[str, Any]) -> None:
        """Raises ValueError when `result` cannot be expressed in JSON."""
        self._respond(encode_result(request.id, result))
        self._ended(id(request))

    def refuse(self, request: Request, code: int, message: str) -> None:
        self._respond(encode_error(request.id, code, message))
        self._ended(id(request), code)

    def withdraw(self, request: Request) -> None:
        """The server does not need the answer any more."""
        self._ended(id(request), error_type="cancelled")

    def close(self) -> None:
        """The connection is closed: no request can be answered any more."""
        for identity in list(self._served):
            self._ended(identity, error_type="connection_closed")

    def _ended(self, identity: int, code: int | None = None, error_type: str | None = None) -> None:
        served = self._served.pop(identity, None)
        if served is not None:
            served.answered(code, error_type)
