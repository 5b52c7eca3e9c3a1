"""Calls that have waited for their server: whether they may still be sent, and what ends them at their deadlines."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.errors import CallTimeout, MCPError, ServerCrashed
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.events import ServerState

_DOINGS = {ServerState.EXITED: "it has exited", ServerState.AUTHORIZING: "a person is asked to log in at it"}


def error_of_waited(
    call: Call,
    server: str,
    refusal: Callable[[str], MCPError | None],
    safe_to_repeat: Callable[[str], bool],
) -> MCPError | None:
    """The error that ends the call instead; None if it may be sent.

    The server may not offer the tool any more that the caller knew, or not the same: ``refusal(tool)`` is the client's
    error then. ``safe_to_repeat(tool)`` is whether the server says now that a second call does no harm.
    """
    tool = call.tool
    if tool is None:
        return None
    error = refusal(tool)
    if error is None and call.owner is not None:
        error = call.owner.refusal(tool)
    if error is not None or not (call.repeatable or call.repeated) or safe_to_repeat(tool):
        return error
    # The server may have said it of its former tool, or long ago.
    call.repeatable = False
    if not call.repeated:
        return None
    return ServerCrashed(
        f"server {server!r} was lost during {call.method}; it says no longer that {tool} may be repeated"
    )


def timeout_of_waiting(call: Call, server: str, state: ServerState) -> CallTimeout:
    """The error for a call that still waits for its server, in `state`, at its deadline."""
    if state is ServerState.READY:
        return CallTimeout(f"server {server!r} was busy with other calls for {call.seconds:g} s")
    doing = _DOINGS.get(state, f"it is {state.value}")
    return CallTimeout(f"server {server!r} was not ready within {call.seconds:g} s: {doing}")
