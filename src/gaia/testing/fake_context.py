"""The context of a request to a fake server: progress, log messages and questions to the client."""

from __future__ import annotations

import itertools
import json
import queue
from collections.abc import Callable, Mapping
from typing import Any

from gaia.agents.base.mcp_context import (
    CAPABILITIES,
    InputRequired,
    MCPCapabilityMissing,
    MCPContext,
    MCPRequestCancelled,
)
from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.errors import JsonRpcError
from gaia.mcp.protocol.exchange import META
from gaia.mcp.protocol.messages import encode_request
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.locks import reentrant_lock
from gaia.testing.fake_state import FakeCall
from gaia.testing.fake_tool import Json

RequestId = int | str


class FakeRequests:
    """The requests of one generation to the client. Thread-safe."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` sends a line to the client."""
        self._write = write
        self._ids = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns `_waiting`."""
        self._waiting: dict[str, queue.SimpleQueue[Json | None]] = {}
        """By id, the queue of the thread that waits for the answer. None in it means that there will be no answer."""

    def ask(self, request: Json, scope: CancelScope) -> Json:
        """Send the client a request, and wait for its result until `scope` is cancelled.

        Raises JsonRpcError for an error, and MCPRequestCancelled if `scope` was cancelled.
        """
        identifier = f"fake-{next(self._ids)}"
        waiting: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        with self._lock:
            self._waiting[identifier] = waiting
        forget = scope.on_cancel(lambda: waiting.put(None))
        try:
            self._write(encode_request(identifier, request["method"], request.get("params")))
            answer = waiting.get()
        finally:
            forget()
            with self._lock:
                self._waiting.pop(identifier, None)
        if answer is None:
            raise MCPRequestCancelled
        if "error" in answer:
            raise JsonRpcError(answer["error"]["code"], answer["error"]["message"])
        result: Json = answer["result"]
        return result

    def answered(self, message: Json) -> None:
        """Pass on a response of the client. It is dropped if no thread waits for it."""
        with self._lock:
            waiting = self._waiting.pop(str(message.get("id")), None)
        if waiting is not None:
            waiting.put(message)


class FakeContext(MCPContext):
    """The context of one request to a fake server, for the function that answers it."""

    def __init__(
        self,
        identifier: RequestId,
        method: str,
        params: Json,
        meta: Json,
        requests: FakeRequests,
        notify: Callable[[str, Json], None],
    ) -> None:
        """`notify` sends the client a notification."""
        super().__init__()
        self._requests = requests
        self._notify = notify
        self.identifier = self.request_id = identifier
        self.method = method
        self.record: FakeCall | None = None
        """The record of a tool call; None for other requests."""
        self.scope = CancelScope()
        self.work_ended: Callable[[], None] = lambda: None
        """Called when the server has finished its work for the request."""
        self.may_hang = True
        """Whether a fault may hold it. Owned by the session."""
        self.is_stateless = False
        self.answers = {**json.loads(params.get("requestState") or "{}"), **(params.get("inputResponses") or {})}
        self._progress_token = meta.get("progressToken")
        self.log_level: Callable[[], str | None] = lambda: meta.get(f"{META}logLevel")
        """The least severe level that the client wants; None for no log messages."""

    def work_begins(self, ended: Callable[[], None]) -> None:
        """Record that the server works for the request. `ended` comes from `FakeServerState.begin_work`."""
        self.work_ended = ended
        self.scope.on_cancel(ended)

    @property
    def cancelled(self) -> bool:
        return self.scope.cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        self.scope.on_cancel(callback)

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._progress_token is None or self.cancelled:
            return
        params = {"progressToken": self._progress_token, "progress": progress, "total": total, "message": message}
        wanted = {key: value for key, value in params.items() if value is not None}
        self._notify("notifications/progress", wanted)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"There is no log level {level!r}; levels are {', '.join(LOG_LEVELS)}")
        least = self.log_level()
        if least in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(least):
            self._notify("notifications/message", {"level": level, "data": data, "logger": logger or "fake"})

    def ask(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for request in requests.values():
            capability = CAPABILITIES.get(request["method"], request["method"])
            if not self.supports(capability):
                raise MCPCapabilityMissing(capability)
        missing = {key: request for key, request in requests.items() if key not in self.answers}
        if missing and self.is_stateless:
            raise InputRequired(missing)
        asked = {key: self._requests.ask(request, self.scope) for key, request in missing.items()}
        return {key: asked[key] if key in asked else self.answers[key] for key in requests}
