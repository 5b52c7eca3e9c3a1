"""One call on its way to a host and back: what is sent, and what its answer makes of it."""

from __future__ import annotations

import time
from typing import Any

import orjson

from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.wire import AskedCall, Reply
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.messages import LONG, loads
from gaia.mcp.rpc.call import Call, RequestOwner


class Flight:
    """Its `gate` and `reply` are owned by the lock of the calls."""

    __slots__ = ("call", "gate", "is_bound", "number", "reply", "reported")

    def __init__(self, call: Call, gate: Gate, *, is_bound: bool = False) -> None:
        """A call that `is_bound` is for this start of the server alone."""
        self.call = call
        self.gate = gate
        self.is_bound = is_bound
        self.number = call.id
        """Kept, because a call that is repeated has another one."""
        self.reported = 0
        """How many reports of progress have come."""
        self.reply: Reply | None = None
        """What is held back until all progress has been reported, which comes another way."""

    def asked(self) -> AskedCall:
        """The message to the host."""
        call, gate = self.call, self.gate
        return AskedCall(
            gate.incarnation,
            self.number,
            call.timeout,
            call.max_timeout,
            call.repeatable and not self.is_bound,
            call.on_progress is not None or call.max_timeout is not None,
            call.tool,
            gate.clock.at(time.monotonic()),
            call.frame,
            gate.listing,
            gate.start if self.is_bound else None,
            *(() if call.owner is None else _owned(call.owner)),
        )

    def succeed(self, result: bytes) -> None:
        """End the call with what the server has answered."""
        call = self.call
        if call.owner is not None:
            # The host has looked at the rest of what an answer must be.
            call.finish_raw(result, is_stateless=False, read_failure=None)
            return
        try:
            decoded = orjson.loads(result) if len(result) < LONG else loads(result)
        except ValueError as error:
            call.finish(error=InvalidResponse(f"the answer to {call.method} cannot be decoded: {error}"))
        else:
            call.finish(result=decoded)


def _owned(owner: RequestOwner) -> tuple[dict[str, Any], str | None]:
    """What the server is told of the client that a call is relayed for."""
    return dict(owner.capabilities), owner.log_level
