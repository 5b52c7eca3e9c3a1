"""The inputs that a server requires for one round. The application is asked for all of them at the same time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gaia.mcp.errors import CallCancelled, InputMissing, InvalidResponse, MCPError
from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal
from gaia.mcp.protocol.rounds import InputRequest
from gaia.mcp.rpc.call_origin import NO_ORIGIN, CallOrigin
from gaia.mcp.supervision.server_requests import ServerRequest, ServerRequests
from gaia.runtime.deadlines import DeadlineHandle
from gaia.runtime.locks import end_once, reentrant_lock


class InputRequests:
    """Ends exactly once: with all answers, or with the error for the client's request. Thread-safe."""

    def __init__(
        self,
        server_requests: ServerRequests,
        requests: Mapping[str, InputRequest],
        on_done: Callable[[InputRequests], object],
        origin: CallOrigin | None = None,
    ) -> None:
        """The caller must call `start`, and `expire` at the deadline. `on_done` must be quick; it may run again."""
        self.deadline = server_requests.deadline()
        self.watched: DeadlineHandle | None = None
        self.answers: dict[str, Any] = {}
        self.error: MCPError | None = None
        self._server_requests = server_requests
        self._requests = requests
        self._on_done = on_done
        self._origin = origin or NO_ORIGIN
        self._lock = reentrant_lock()
        """Owns `_open`, and is held to write `answers`."""
        self._open: list[ServerRequest] = []
        self._outcome: dict[None, tuple[Any, ...]] = {}

    def start(self) -> None:
        """Ask the application for all inputs; ask nothing and fail if the server requires one that was not offered."""
        for key, request in self._requests.items():
            if not self._server_requests.features.offers(request.method):
                text = f"inputRequests.{key[:40]}: the server asks for {request.method[:40]}, which it was not offered"
                self._finish(InvalidResponse(text))
                return
        for key, request in self._requests.items():
            if self.ended:
                return
            server_request = self._server_requests.ask(
                request.method, request.params, functools.partial(self._answered, key), self._origin
            )
            with self._lock:
                self._open.append(server_request)
        if not self._requests:
            self._finish(None)
        if self.ended:
            # Another thread may have ended it before all requests were in `_open`.
            self._withdraw()

    @property
    def ended(self) -> bool:
        return bool(self._outcome)

    def expire(self) -> None:
        self._finish(InputMissing("the server's requests for input were not answered in time"))

    def cancel(self, error: CallCancelled) -> bool:
        return self._finish(error)

    def _answered(self, key: str, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        if refusal is not None:
            text = f"inputRequests.{key[:40]}: {refusal.message}"
            # Invalid params are the server's fault, everything else is the client's.
            self._finish(InvalidResponse(text) if refusal.code == INVALID_PARAMS else InputMissing(text))
        elif result is None:
            self._finish(CallCancelled("the client was disconnected"))
        else:
            with self._lock:
                self.answers[key] = result
                complete = len(self.answers) == len(self._requests)
            if complete:
                self._finish(None)

    def _finish(self, error: MCPError | None) -> bool:
        return end_once(self._outcome, (error,), self._conclude)

    def _conclude(self, error: MCPError | None) -> None:
        if error is not None:
            # The server has seen the request, and may have acted on it.
            error.delivery = "unknown"
        self.error = error
        self._withdraw()
        self._on_done(self)
        if self.watched is not None:
            self.watched.release()

    def _withdraw(self) -> None:
        with self._lock:
            server_requests = list(self._open)
        for server_request in server_requests:
            server_request.withdraw()
