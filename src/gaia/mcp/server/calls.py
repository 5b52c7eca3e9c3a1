"""Questions to the client during a call: `ServedContext`, and the answers carried from round to round.

Up to revision 2025-11-25, the server sends the client a request and waits. Since 2026-07-28, the server ends the call
with ``input_required``, and the client calls again with the answers. The answers of earlier rounds travel in
``requestState``, which the server seals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar, cast

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gaia.agents.base.mcp_context import (
    CAPABILITIES,
    InputRequired,
    MCPCapabilityMissing,
    MCPContext,
    MCPRequestCancelled,
    current_mcp_context,
)
from gaia.mcp.protocol.json_schema import problems_by_own_schema
from gaia.mcp.server.changes import wants_log
from gaia.runtime.log import get_logger
from gaia.serving.threads import TooManyCalls, WorkerThreads

REQUESTS: dict[str, tuple[Any, Any]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
RECOGNISED_BY = {"elicitation/create": "action", "sampling/createMessage": "content", "roots/list": "roots"}


class ServedContext(MCPContext):
    """The context of one served request. Made on the event loop, used on a worker thread."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], answers: Mapping[str, Any], state: str | None) -> None:
        super().__init__()
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self.method = ctx.method
        self.request_id = ctx.request_id
        self.protocol_version = ctx.protocol_version
        self.is_stateless = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        client = ctx.session.client_params
        self.client_info = client.client_info.model_dump(by_alias=True, exclude_none=True) if client else {}
        capabilities = ctx.session.client_capabilities
        self.client_capabilities = capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities else {}
        try:
            kept = orjson.loads(state or "{}")
        except orjson.JSONDecodeError:
            kept = {}
        kept = kept if isinstance(kept, dict) else {}
        self.request_state = kept.get("state")
        self.round: int = kept.get("round", 1)
        """1 for a first call. The client sends it, so it may be wrong."""
        self._kept: dict[str, dict[str, Any]] = dict(kept.get("answers") or {})
        self.answers = {**self._kept, **answers}

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._await(self._ctx.session.report_progress(progress, total, message))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if not wants_log(self._ctx, level):
            return
        notification = types.LoggingMessageNotification.model_validate(
            {"params": {"level": level, "data": data, **({} if logger is None else {"logger": logger})}}
        )
        self._await(self._ctx.session.send_notification(notification, related_request_id=self.request_id))

    def ask(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for request in requests.values():
            self._check_capability(request)
        answers = {key: self.answers[key] for key, request in requests.items() if self._is_answered(key, request)}
        missing = {key: request for key, request in requests.items() if key not in answers}
        if missing and self.is_stateless:
            self._kept |= answers
            raise InputRequired(missing)
        answers |= {key: self._await(self._send(request)) for key, request in missing.items()}
        self._kept |= answers
        return answers

    async def send_all(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Send an agent's questions to a client of the handshake era, and wait for the answers."""
        for request in requests.values():
            self._check_capability(request)
        return {**self.answers, **{key: await self._send(request) for key, request in requests.items()}}

    def pack(self, state: str | None) -> str:
        """The state that the client must bring back: the round, the answers so far, and the agent's own `state`."""
        kept = {"round": self.round + 1, "answers": self._kept, **({} if state is None else {"state": state})}
        return orjson.dumps(kept).decode()

    def _check_capability(self, request: dict[str, Any]) -> None:
        capability = CAPABILITIES.get(request["method"])
        if capability is None:
            raise ValueError(f"A client cannot be asked {request['method']!r}")
        if not self.supports(capability) or not (self.is_stateless or self._ctx.session.can_send_request):
            raise MCPCapabilityMissing(capability)
        params = request.get("params") or {}
        declared = self.client_capabilities[capability]
        if capability == "elicitation" and (mode := params.get("mode", "form")) not in (declared or {"form": {}}):
            # A client that names no mode supports forms.
            raise MCPCapabilityMissing(f"elicitation.{mode}")
        if capability == "sampling" and "tools" in params and "tools" not in declared:
            raise MCPCapabilityMissing("sampling.tools")

    def _is_answered(self, key: str, request: dict[str, Any]) -> bool:
        answer = self.answers.get(key)
        if not isinstance(answer, dict) or RECOGNISED_BY[request["method"]] not in answer:
            return False
        form = request.get("params", {}).get("requestedSchema")
        if form is None or answer.get("action") != "accept":
            return True
        # A form with wrong content is shown again.
        return not problems_by_own_schema(form, answer.get("content") or {})

    async def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        request_type, result_type = REQUESTS[request["method"]]
        typed = request_type.model_validate(request, by_name=False)
        # Sent on the stream of its request, which the client reads while it waits.
        metadata = ServerMessageMetadata(related_request_id=self.request_id)
        result = await self._ctx.session.send_request(typed, result_type, metadata=metadata)
        answer: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return answer

    def _await(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Run `action` on the event loop and wait for it, unless the request is cancelled first."""
        if self.scope.cancelled:
            action.close()
            raise MCPRequestCancelled
        future = asyncio.run_coroutine_threadsafe(action, self._loop)
        forget = self.scope.on_cancel(future.cancel)
        try:
            return future.result()
        except CancelledError:
            raise MCPRequestCancelled from None
        finally:
            forget()


logger = get_logger(__name__)

ResultT = TypeVar("ResultT")

_BUSY = "The server is busy: too many calls at once"

MAX_ROUNDS = 10
"""Rounds of one call. Without the limit, an agent could ask for ever."""


class MayHaveActed(MCPError):
    """A request failed, and the agent may have acted on it.

    Clients may repeat a request after an internal error, so a tool call returns a result instead.
    """


class Calls:
    """Runs an agent's methods. `in_flight` holds the contexts of requests that are being answered."""

    def __init__(self, threads: WorkerThreads) -> None:
        self._threads = threads
        self.in_flight: set[ServedContext] = set()

    async def plain(self, function: Callable[[], ResultT]) -> ResultT:
        """Run a method that lists something. It has no context and cannot ask the client."""
        try:
            return await self._threads.run(function)
        except TooManyCalls:
            raise MCPError(types.INTERNAL_ERROR, _BUSY) from None

    async def interactive(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.InputResponseRequestParams,
        function: Callable[[], ResultT | dict[str, Any]],
    ) -> ResultT | types.InputRequiredResult:
        """Run a method that may ask the client, with an exception or with an ``input_required`` dictionary."""
        answers: dict[str, Any] = {
            key: given.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, given in (params.input_responses or {}).items()
        }
        state = params.request_state
        while (context := ServedContext(ctx, answers, state)).round <= MAX_ROUNDS:
            outcome = await self._with_context(context, function)
            if isinstance(outcome, InputRequired):
                return _input_required(outcome.requests, context.pack(None))
            if not (isinstance(outcome, dict) and outcome.get("resultType") == "input_required"):
                return cast("ResultT", outcome)
            requests, state = outcome.get("inputRequests") or {}, context.pack(outcome.get("requestState"))
            if context.is_stateless:
                return _input_required(requests, state)
            try:
                answers = await context.send_all(requests)
            except MCPCapabilityMissing as missing:
                raise capability_error(context, missing) from None
        raise MayHaveActed(types.INTERNAL_ERROR, f"More than {MAX_ROUNDS} rounds of questions for one call")

    async def _with_context(self, context: ServedContext, function: Callable[[], Any]) -> Any:
        def call() -> Any:
            # The thread runs this in a copy of the context variables, so nothing has to be reset.
            current_mcp_context.set(context)
            with context.scope.entered():
                try:
                    return function()
                except InputRequired as required:
                    return required

        self.in_flight.add(context)
        try:
            return await self._threads.run(call)
        except asyncio.CancelledError:
            context.scope.cancel()
            raise
        except MCPCapabilityMissing as missing:
            raise capability_error(context, missing) from None
        except TooManyCalls:
            kind = MCPError if context.round == 1 else MayHaveActed
            raise kind(types.INTERNAL_ERROR, _BUSY) from None
        finally:
            self.in_flight.discard(context)


def capability_error(context: ServedContext, missing: MCPCapabilityMissing) -> MCPError:
    """The protocol's error for a question that needs a missing capability of the client."""
    if not context.is_stateless:
        return MCPError(types.INVALID_REQUEST, str(missing))
    required: dict[str, Any] = {}
    for name in reversed(missing.capability.split(".")):
        required = {name: required}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(missing), {"requiredCapabilities": required})


def _input_required(requests: dict[str, Any], state: str) -> types.InputRequiredResult:
    try:
        return types.InputRequiredResult.model_validate(
            {"resultType": "input_required", "inputRequests": requests or None, "requestState": state}, by_name=False
        )
    except ValidationError as error:
        logger.error("input_requests_invalid", error=str(error))
        raise MayHaveActed(
            types.INTERNAL_ERROR, "The agent asked for input in a form that the protocol does not know"
        ) from None
