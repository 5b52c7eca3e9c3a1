"""The confirmation gate: a person sees a tool call before it is made.

The policy decides which calls need a person:

=============== ======================================================================================================
``never``       none
``marked``      calls of tools that are marked destructive (`is_marked_destructive`)
``destructive`` calls of all tools that are not marked read-only (`requires_confirmation`)
``always``      every call
=============== ======================================================================================================

A call that needs a person is refused if there is none to ask. The default policy is ``destructive`` with a person, and
``marked`` without one. So without a person, tools whose servers say nothing about them can be used, and a tool that is
marked destructive cannot, unless the application permits it. Under ``destructive``, ``destructiveHint: false`` does not
exempt a tool.

Any answer of the callback except True, also an exception, refuses the call, and the model is told. Annotations come
from the server: they are only as trustworthy as the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gaia.agents.base.tools import get_tool_display_name
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

ConfirmationPolicy = Literal["never", "marked", "destructive", "always"]

_REASONS: Mapping[ConfirmationPolicy, str] = {
    "marked": "the tool is marked destructive",
    "destructive": "the tool is not marked read-only",
    "always": "every call needs one",
}


@dataclass(frozen=True)
class ConfirmationRequest:
    """A tool call that a person should see before it is made."""

    tool: str
    """The tool's key in the registry."""
    display_name: str
    """The tool's name for people: ``tool (server)``."""
    arguments: Mapping[str, Any]
    """The arguments that the model wants to pass."""
    description: str = ""
    """The tool's own description. For an MCP tool, its server wrote it."""
    server: str | None = None
    """The tool's MCP server; None for a native tool."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """The MCP server's annotations of the tool."""


def requires_confirmation(entry: Mapping[str, Any]) -> bool:
    """Whether calls of a registry entry's tool need a person under the policy ``destructive``.

    A tool of an MCP server does unless its annotations say ``readOnlyHint: true``, the boolean; a native one if it was
    registered with ``requires_confirmation=True``.
    """
    if entry.get("requires_confirmation"):
        return True
    if "_mcp_server" not in entry and "_mcp_tool_name" not in entry:
        return False
    annotations = entry.get("_mcp_annotations")
    return not (isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True)


def is_marked_destructive(entry: Mapping[str, Any]) -> bool:
    """Whether calls of a registry entry's tool need a person under the policy ``marked``.

    A native tool does if it was registered with ``requires_confirmation=True``. For a tool of an MCP server the
    annotations decide as the protocol defines them: ``destructiveHint: true`` marks it, and so does ``readOnlyHint:
    false`` alone, because the default of ``destructiveHint`` is true. ``readOnlyHint: true`` and ``destructiveHint:
    false`` say that it is harmless. A tool whose annotations have neither hint is not marked.
    """
    if entry.get("requires_confirmation"):
        return True
    annotations = entry.get("_mcp_annotations")
    if not isinstance(annotations, Mapping) or annotations.get("readOnlyHint") is True:
        return False
    destructive = annotations.get("destructiveHint")
    return annotations.get("readOnlyHint") is not None if destructive is None else destructive is not False


_NEEDS_PERSON: Mapping[ConfirmationPolicy, Callable[[Mapping[str, Any]], bool]] = {
    "never": lambda _: False,
    "marked": is_marked_destructive,
    "destructive": requires_confirmation,
    "always": lambda _: True,
}


class ConfirmationGate:
    """Asks before a call is made, one question at a time. Thread-safe."""

    def __init__(self, policy: ConfirmationPolicy, ask: Callable[[ConfirmationRequest], bool] | None) -> None:
        if policy not in get_args(ConfirmationPolicy):
            raise ValueError(f"confirm must be one of {', '.join(get_args(ConfirmationPolicy))}, not {policy!r}")
        self.policy = policy
        self._ask = ask
        self._asking = reentrant_lock()

    def refusal(self, key: str, entry: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
        """Ask if the policy requires it. Returns why the call is not made, for the model, or None."""
        if not _NEEDS_PERSON[self.policy](entry):
            return None
        if self._ask is None:
            logger.warning("confirmation_impossible", tool=key, policy=self.policy)
            return (
                f"The call of {key!r} was not made: it needs the confirmation of a person ({_REASONS[self.policy]}), "
                "and there is none to ask. The application can pass on_confirmation=<function> to the agent, or "
                'confirm="never" to allow all calls.'
            )
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
        # Only True counts, because the text "no" is truthy.
        return None if confirmed is True else f"The user refused the call of {key!r}. It was not made."
