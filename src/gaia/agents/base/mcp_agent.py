"""`MCPAgent`: an agent that can be served to MCP clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from gaia.agents.base.agent import Agent
from gaia.agents.base.mcp_context import MCPContext, current_mcp_context

_OPTIONAL_METHODS = {
    "prompts": ("get_mcp_prompts",),
    "resources": ("get_mcp_resources", "get_mcp_resource_templates", "read_mcp_resource"),
    "completions": ("complete_mcp_argument",),
}


class MCPAgent(Agent):
    """Base class for agents that support MCP; `gaia.mcp.server` serves them. Works in any order with `ApiAgent`.

    Only the two abstract methods are required. The server calls all methods on worker threads, several at once.
    """

    @abstractmethod
    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        """The tools that `execute_mcp_tool` knows, each with ``name``, ``description`` and ``inputSchema``.

        The name is in lower case with dashes, the schema a JSON Schema of type object.
        """

    @abstractmethod
    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one tool, synchronously, and return a dict that can be written as JSON.

        Raises ValueError if there is no such tool. Other failures are returned as ``{"error": message}`` or raised as
        ValueError.
        """

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        """The prompt templates on offer, each with ``name``, ``description`` and ``arguments``; none by default."""
        return []

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        """The resources on offer, each with ``uri``, ``name``, ``description``, ``mimeType``; none by default."""
        return []

    def get_mcp_server_info(self) -> dict[str, Any]:
        """``name`` and ``version`` of this agent as a server."""
        return {"name": f"GAIA {type(self).__name__}", "version": "2.0.0"}

    @property
    def mcp_context(self) -> MCPContext:
        """The MCP request being answered in this thread: progress, log messages, cancellation, questions to the user.

        Outside of a request it is a substitute, so an agent may always use it.
        """
        return current_mcp_context.get() or MCPContext()

    def offers_mcp(self, what: str) -> bool:
        """Whether this agent has ``prompts``, ``resources`` or ``completions``, so that the server declares them.

        True if the agent overrides one of their methods.
        """
        return any(getattr(type(self), name) is not getattr(MCPAgent, name) for name in _OPTIONAL_METHODS[what])

    def get_mcp_instructions(self) -> str:
        """Instructions for a model that uses this agent's tools, for the client's system prompt; empty by default."""
        return ""

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        """The messages of the prompt `name`. All required arguments are given.

        Returns a text, which becomes one message of the user, a list of messages ``{"role", "content"}``, or
        ``{"description", "messages"}``. The default is the prompt's description with the arguments below it.

        Raises ValueError if there is no such prompt.
        """
        for prompt in self.get_mcp_prompts():
            if prompt.get("name") == name:
                lines = [str(prompt.get("description") or name)]
                lines += [f"{argument}: {value}" for argument, value in arguments.items()]
                return "\n".join(lines)
        raise ValueError(f"Unknown prompt: {name}")

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        """Resource templates, each with ``uriTemplate`` and ``name``. `read_mcp_resource` receives the expanded URI."""
        return []

    def read_mcp_resource(self, uri: str) -> Any:
        """The resource at `uri`: text, bytes, ``{"contents": [...]}``, or any other value, which is written as JSON.

        Raises ValueError if there is no such resource.
        """
        raise ValueError(f"Unknown resource: {uri}")

    def complete_mcp_argument(
        self,
        reference: dict[str, Any],  # noqa: ARG002 - the default has nothing to suggest
        name: str,  # noqa: ARG002
        value: str,  # noqa: ARG002
        arguments: dict[str, str],  # noqa: ARG002
    ) -> list[str]:
        """Suggestions for the argument `name` of a prompt or resource template; `value` is the text so far.

        `reference` is ``{"type": "ref/prompt", "name"}`` or ``{"type": "ref/resource", "uri"}``. `arguments` are the
        arguments that already have values.
        """
        return []

    def set_mcp_logging_level(self, level: str) -> None:
        """Called when a client asks for log messages from this level on.

        The server filters messages itself, so only an agent that can save work needs this.
        """

    def notify_mcp_change(self, what: str, uri: str | None = None) -> None:
        """Tell the clients that ``"tools"``, ``"prompts"`` or ``"resources"`` changed, or the ``"resource"`` at `uri`.

        Thread-safe; without a server it does nothing.
        """
        for listener in tuple(self._mcp_listeners):
            listener(what, uri)

    def add_mcp_listener(self, listener: Callable[[str, str | None], None]) -> Callable[[], None]:
        """Let `notify_mcp_change` also call `listener`. Returns a function that ends this. For servers."""
        self._mcp_listeners = (*self._mcp_listeners, listener)

        def remove() -> None:
            self._mcp_listeners = tuple(one for one in self._mcp_listeners if one is not listener)

        return remove

    _mcp_listeners: tuple[Callable[[str, str | None], None], ...] = ()
