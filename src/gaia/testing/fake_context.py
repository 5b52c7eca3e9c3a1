"""What a function of a test can do with the request that it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gaia.agents.base.mcp_context import CAPABILITIES, InputRequired, MCPCapabilityMissing, MCPContext
from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.protocol.eras import META
from gaia.runtime.cancellation import CancelScope
from gaia.testing.fake_state import FakeCall
from gaia.testing.fake_tool import Json

RequestId = int | str


class Client(Protocol):
    """What a context needs of the session with the client."""

    def send_progress(self, params: Json) -> None:
        """Send the params of a ``notifications/progress``."""

    def send_log(self, params: Json, level: str | None) -> None:
        """Send the params of a ``notifications/message``; `level` is the least severe one that the request wants."""

    def ask(self, request: Json, scope: CancelScope) -> Json:
        """Send a request, and wait for its result, until `scope` is cancelled."""


class FakeContext(MCPContext):
    """The context of one request to a fake server, for the function that answers it."""

    def __init__(
        self,
        client: Client,
        identifier: RequestId,
        method: str,
        params: Json,
        meta: Json,
        record: FakeCall | None,
    ) -> None:
        super().__init__()
        self._client = client
        self.identifier = self.request_id = identifier
        self.method = method
        self.record = record
        self.scope = CancelScope()
        self.work_ended: Callable[[], None] = lambda: None
        """To be called when the server does nothing for the request any more."""
        self.may_hang = True
        """Whether a fault may hold it; the session owns that."""
        self.is_stateless = False
        self.answers = {**json.loads(params.get("requestState") or "{}"), **(params.get("inputResponses") or {})}
        self._progress_token = meta.get("progressToken")
        self._log_level = meta.get(f"{META}logLevel")

    def work_begins(self, ended: Callable[[], None]) -> None:
        """The server does something for the request; `ended` comes from `FakeServerState.begin_work`."""
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
        self._client.send_progress({key: value for key, value in params.items() if value is not None})

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"There is no log level {level!r}; levels are {', '.join(LOG_LEVELS)}")
        self._client.send_log({"level": level, "data": data, "logger": logger or "fake"}, self._log_level)

    def ask(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for request in requests.values():
            capability = CAPABILITIES.get(request["method"], request["method"])
            if not self.supports(capability):
                raise MCPCapabilityMissing(capability)
        missing = {key: request for key, request in requests.items() if key not in self.answers}
        if missing and self.is_stateless:
            raise InputRequired(missing)
        asked = {key: self._client.ask(request, self.scope) for key, request in missing.items()}
        return {key: asked[key] if key in asked else self.answers[key] for key in requests}
