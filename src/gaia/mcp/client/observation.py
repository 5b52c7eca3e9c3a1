"""What is seen of one tool call from outside: its span and its log event."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from gaia import telemetry
from gaia.log import get_logger
from gaia.mcp.client.supervision.client_request import ClientRequest
from gaia.mcp.errors import JsonRpcError, MCPError

__all__ = ["Observation", "observe"]

logger = get_logger(__name__)


class Observation:
    """Follows one call. `of` and `ended` are called once each; `ended` perhaps from another thread."""

    __slots__ = ("_call_id", "_server", "_span", "_started", "_tool")

    def __init__(self, server: str, tool: str, span: telemetry.CallSpan | None) -> None:
        self._server = server
        self._tool = tool
        self._span = span
        self._call_id: int | None = None
        self._started = time.monotonic()

    def of(self, wanted: ClientRequest) -> ClientRequest:
        """The request as it is followed: with the trace context, which the server may continue."""
        params = wanted.params
        if self._span is not None and params is not None:
            params = self._span.inject(params)
        return msgspec.structs.replace(wanted, params=params, on_call=self._sent)

    def _sent(self, call_id: int) -> None:
        """The call has got its JSON-RPC id."""
        self._call_id = call_id
        if self._span is not None:
            self._span.set_request_id(call_id)

    def ended(self, error: BaseException | None, result: Mapping[str, Any]) -> None:
        """The call has its outcome, or was not made because of `error`."""
        if self._span is not None:
            _end_span(self._span, error, result)
        failure = None if error is None else _error_type(error)
        if failure is None and result.get("isError") is True:
            failure = telemetry.TOOL_ERROR
        logger.debug(
            "tool_called",
            server=self._server,
            tool=self._tool,
            call_id=self._call_id,
            seconds=round(time.monotonic() - self._started, 6),
            error_type=failure,
        )


def observe(
    server: str, tool: str, *, protocol_version: str | None, network_transport: str | None
) -> Observation | None:
    """Follow a call that is about to be made; None if nobody is looking, which is the quick way."""
    span = telemetry.start_call_span(
        "tools/call",
        server=server,
        tool=tool,
        protocol_version=protocol_version,
        network_transport=network_transport,
    )
    if span is None and not logger.is_enabled_for(logging.DEBUG):
        return None
    return Observation(server, tool, span)


def _end_span(span: telemetry.CallSpan, error: BaseException | None, result: Mapping[str, Any]) -> None:
    if error is None:
        span.end(result)
    elif isinstance(error, JsonRpcError):
        span.fail(error.error_type, error.message, code=error.code)
    elif isinstance(error, MCPError):
        span.fail(error.error_type, error.message, delivery=error.delivery)
    else:
        # Arguments that are no JSON, say, or Ctrl-C in the waiting thread.
        span.fail(_error_type(error), str(error))


def _error_type(error: BaseException) -> str:
    return error.error_type if isinstance(error, MCPError) else type(error).__qualname__
