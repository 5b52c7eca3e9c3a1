"""The confirmation gate: a person sees a tool call before it is made.

Which calls are shown is the policy:

=============== ======================================================================================================
``never``       none
``destructive`` calls of tools that `requires_confirmation`
``always``      every call
=============== ======================================================================================================

Everything fails closed. A tool of an MCP server requires confirmation unless its annotations say
``readOnlyHint: true``, the boolean and nothing else; ``destructiveHint: false`` does not exempt it. A native tool
requires it if it was registered with ``requires_confirmation=True``. Anything but True from the callback, an exception
included, refuses the call, and the model is told. Annotations come from the server: they are worth as much as the
server is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gaia.agents.base.tools import get_tool_display_name
from gaia.exception_text import exception_text
from gaia.locks import reentrant_lock
from gaia.log import get_logger

__all__ = ["ConfirmationGate", "ConfirmationPolicy", "ConfirmationRequest", "requires_confirmation"]

logger = get_logger(__name__)

ConfirmationPolicy = Literal["never", "destructive", "always"]


@dataclass(frozen=True)
class ConfirmationRequest:
    """A tool call that a person should see before it is made."""

    tool: str
    """The tool's key in the registry."""
    display_name: str
    """Its name for people: ``tool (server)``."""
    arguments: Mapping[str, Any]
    """What the model wants to call it with."""
    description: str = ""
    """What the tool does, in its own words; those of an MCP tool are the server's."""
    server: str | None = None
    """The MCP server that it is on; None for a native tool."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """What the MCP server says about the tool."""


def requires_confirmation(entry: Mapping[str, Any]) -> bool:
    """Whether calls of this tool, an entry of the registry, are shown under the policy ``destructive``."""
    if entry.get("requires_confirmation"):
        return True
    if "_mcp_server" not in entry and "_mcp_tool_name" not in entry:
        return False
    annotations = entry.get("_mcp_annotations")
    return not (isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True)


class ConfirmationGate:
    """Asks before a call is made, one question at a time. Thread-safe."""

    def __init__(self, policy: ConfirmationPolicy, ask: Callable[[ConfirmationRequest], bool] | None) -> None:
        if policy not in get_args(ConfirmationPolicy):
            raise ValueError(f"confirmation must be one of {', '.join(get_args(ConfirmationPolicy))}, not {policy!r}")
        self.policy = policy
        self._ask = ask
        self._asking = reentrant_lock()

    def refusal(self, key: str, entry: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
        """Ask if the policy wants it; returns why the call may not be made, for the model, or None."""
        if self.policy == "never" or (self.policy == "destructive" and not requires_confirmation(entry)):
            return None
        if self._ask is None:
            return f"The call of {key!r} needs a confirmation, and there is no person to ask. It was not made."
        request = ConfirmationRequest(
            tool=key,
            display_name=get_tool_display_name(key),
            arguments=arguments,
            description=str(entry.get("description") or ""),
            server=entry.get("_mcp_server"),
            annotations=entry.get("_mcp_annotations") or {},
        )
        with self._asking:
            try:
                confirmed = self._ask(request)
            except Exception as error:  # noqa: BLE001 - the callback is the application's, and its failure is no consent
                logger.error("confirmation_failed", tool=key, error=exception_text(error))
                return f"The call of {key!r} could not be confirmed. It was not made."
        # Not just anything that is true: the text "no" is.
        return None if confirmed is True else f"The user refused the call of {key!r}. It was not made."
