"""The context of a request to a fake server: progress, log messages and questions to the client."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
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
from gaia.testing.fake_state import FakeCall
from gaia.testing.fake_tool import Json

RequestId = int | str


class FakeRequests:
    """The requests of one generation to its client. Thread-safe."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._ids = itertools.count(1)
        self._waiting: dict[str, Future[Json]] = {}
        """By id. Each use is a single operation, so no lock is needed."""

    def ask(self, request: Json, scope: CancelScope) -> Json:
        """Ask the client, and wait for the result.

        Raises JsonRpcError, and MCPRequestCancelled if `scope` is cancelled.
        """
        identifier = f"fake-{next(self._ids)}"
        waiting = self._waiting[identifier] = Future()
        forget = scope.on_cancel(waiting.cancel)
        try:
            self._write(encode_request(identifier, request["method"], request.get("params")))
            answer = waiting.result()
        except CancelledError:
            raise MCPRequestCancelled from None
        finally:
            forget()
            self._waiting.pop(identifier, None)
        if "error" in answer:
            raise JsonRpcError(answer["error"]["code"], answer["error"]["message"])
        result: Json = answer["result"]
        return result

    def answered(self, message: Json) -> None:
        """Pass on a response of the client, or drop it if no thread waits for it."""
        waiting = self._waiting.pop(str(message.get("id")), None)
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(message)


class FakeContext(MCPContext):
    def __init__(
        self,
        identifier: RequestId,
        method: str,
        params: Json,
        requests: FakeRequests,
        notify: Callable[[str, Json], None],
    ) -> None:
        super().__init__()
        self._requests = requests
        self._notify = notify
        self.identifier = self.request_id = identifier
        self.method = method
        self.params = params
        self.record: FakeCall | None = None
        self.work_ended: Callable[[], None] = lambda: None
        self.may_hang = True
        """Whether a fault may hold the request. The session's lock guards it."""
        self.is_stateless = False
        self.answers = {**json.loads(params.get("requestState") or "{}"), **(params.get("inputResponses") or {})}
        self.meta: Json = params.get("_meta") or {}
        self.log_level: Callable[[], str | None] = lambda: self.meta.get(f"{META}logLevel")
        """The least severe level that the client wants; None: no log messages."""

    def work_begins(self, ended: Callable[[], None]) -> None:
        self.work_ended = ended
        self.scope.on_cancel(ended)

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = self.meta.get("progressToken")
        if token is not None and not self.cancelled:
            params = {"progressToken": token, "progress": progress, "total": total, "message": message}
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
