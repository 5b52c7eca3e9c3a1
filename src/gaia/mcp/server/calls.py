"""`Calls`: from a request on the event loop to the agent's code on a worker thread, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from gaia.agents.base.mcp_context import InputRequired, MCPCapabilityMissing, current_mcp_context
from gaia.mcp.server.rounds import ServedContext
from gaia.runtime.log import get_logger
from gaia.serving.threads import TooManyCalls, WorkerThreads

logger = get_logger(__name__)

ResultT = TypeVar("ResultT")

MAX_ROUNDS = 10
"""How often one call may be answered with further questions: an agent that never has enough would ask for ever."""


class MayHaveActed(MCPError):
    """The agent may have acted on the request that this error is for.

    Clients may repeat a request that fails with an internal error, so a tool call gets a result instead.
    """


class Calls:
    """Runs an agent's methods; `in_flight` are the requests it is answering."""

    def __init__(self, threads: WorkerThreads) -> None:
        self._threads = threads
        self.in_flight: set[ServedContext] = set()

    async def plain(self, function: Callable[[], ResultT]) -> ResultT:
        """A method that lists something: no context, no requests to the client."""
        try:
            return await self._threads.run(function)
        except TooManyCalls:
            raise _busy() from None

    async def interactive(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: types.InputResponseRequestParams,
        function: Callable[[], ResultT | dict[str, Any]],
    ) -> ResultT | types.InputRequiredResult:
        """A method that may ask the client, by an exception or by a dictionary with ``input_required``."""
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
            # The thread runs this in a copy of the context variables: nothing needs to be set back.
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
            raise _busy(MCPError if context.round == 1 else MayHaveActed) from None
        finally:
            self.in_flight.discard(context)


def capability_error(context: ServedContext, missing: MCPCapabilityMissing) -> MCPError:
    """The protocol's error for a question that this client cannot be asked."""
    if context.is_stateless:
        required: dict[str, Any] = {}
        for name in reversed(missing.capability.split(".")):
            required = {name: required}
        data = {"requiredCapabilities": required}
        return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(missing), data)
    return MCPError(types.INVALID_REQUEST, str(missing))


def _busy(kind: type[MCPError] = MCPError) -> MCPError:
    return kind(types.INTERNAL_ERROR, "The server is busy: too many calls at once")


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
