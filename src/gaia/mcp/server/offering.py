"""`Offering`: what the server needs of what it serves. `MCPAgent` is one, the bridge over several agents is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["OPTIONAL_METHODS", "Offering", "offers"]


class Offering(Protocol):
    """The methods of `gaia.agents.base.MCPAgent` that are served; see there."""

    def get_mcp_server_info(self) -> dict[str, Any]: ...
    def get_mcp_instructions(self) -> str: ...
    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]: ...
    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]: ...
    def get_mcp_prompts(self) -> list[dict[str, Any]]: ...
    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any: ...
    def get_mcp_resources(self) -> list[dict[str, Any]]: ...
    def get_mcp_resource_templates(self) -> list[dict[str, Any]]: ...
    def read_mcp_resource(self, uri: str) -> Any: ...
    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]: ...
    def set_mcp_logging_level(self, level: str) -> None: ...
    def add_mcp_listener(self, listener: Callable[[str, str | None], None]) -> Callable[[], None]: ...


OPTIONAL_METHODS = {
    "prompts": ("get_mcp_prompts",),
    "resources": ("get_mcp_resources", "get_mcp_resource_templates", "read_mcp_resource"),
    "completions": ("complete_mcp_argument",),
}
"""Which methods make an agent one that offers more than tools."""


def offers(offering: Offering, what: str) -> bool:
    """Whether an agent has its own version of a method of `OPTIONAL_METHODS`, so that clients are told of it."""
    if (answer := getattr(offering, "offers_mcp", None)) is not None:
        # A bridge offers what any of its agents does.
        return bool(answer(what))
    return any(_overrides(offering, name) for name in OPTIONAL_METHODS[what])


def _overrides(offering: Offering, name: str) -> bool:
    from gaia.agents.base.mcp_agent import MCPAgent

    function = getattr(getattr(offering, name), "__func__", None)
    return function is not getattr(MCPAgent, name)
