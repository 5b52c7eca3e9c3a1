"""`MCPBridge`: several agents behind one MCP endpoint.

Tools and prompts are offered as ``<namespace>_<name>``; resources keep their URIs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import Any

from gaia.agents.base.mcp_context import ServableAgent
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_Listing = Callable[[ServableAgent], list[dict[str, Any]]]
_tools: _Listing = methodcaller("get_mcp_tool_definitions")
_prompts: _Listing = methodcaller("get_mcp_prompts")


class MCPBridge:
    """Offers the tools, prompts and resources of its `agents`, and passes each request to the right agent.

    It is served like an agent::

        serve_http(MCPBridge({"code": CodeAgent(), "files": FileAgent()}))

    Namespaces consist of ASCII letters, digits, ``_`` and ``-``, as names of tools do. If tools of two agents would
    have the same name (``a`` with ``b_c`` and ``a_b`` with ``c``), the first agent's tool has it.
    """

    def __init__(
        self, agents: Mapping[str, ServableAgent], *, name: str = "GAIA bridge", version: str = "2.0.0"
    ) -> None:
        for namespace in agents:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", namespace):
                raise ValueError(f"{namespace!r} cannot be a namespace: use ASCII letters, digits, '_' and '-'")
        self._agents = dict(agents)
        self._info = {"name": name, "version": version}

    def get_mcp_server_info(self) -> dict[str, Any]:
        return self._info

    def get_mcp_instructions(self) -> str:
        parts = [(namespace, agent.get_mcp_instructions()) for namespace, agent in self._agents.items()]
        return "\n\n".join(f"Tools named {namespace}_…: {text}" for namespace, text in parts if text)

    def offers_mcp(self, what: str) -> bool:
        """Whether at least one agent offers ``prompts``, ``resources`` or ``completions``."""
        return any(agent.offers_mcp(what) for agent in self._agents.values())

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [{**one, "name": name} for name, _, one in self._named(_tools)]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        agent, original = self._find(_tools, "tool", tool_name)
        return agent.execute_mcp_tool(original, arguments)

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        return [{**one, "name": name} for name, _, one in self._named(_prompts)]

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        agent, original = self._find(_prompts, "prompt", name)
        return agent.get_mcp_prompt(original, arguments)

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [one for agent in self._agents.values() for one in agent.get_mcp_resources()]

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        return [one for agent in self._agents.values() for one in agent.get_mcp_resource_templates()]

    def read_mcp_resource(self, uri: str) -> Any:
        """Read from the agent that lists the URI, or else from the first agent that accepts it, as a template may."""
        agents = sorted(
            self._agents.values(), key=lambda agent: all(one.get("uri") != uri for one in agent.get_mcp_resources())
        )
        for agent in agents:
            try:
                return agent.read_mcp_resource(uri)
            except ValueError as error:
                if type(error) is not ValueError:
                    raise
        raise ValueError(f"Unknown resource: {uri}")

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        if reference.get("type") == "ref/prompt":
            agent, original = self._find(_prompts, "prompt", str(reference.get("name")))
            return agent.complete_mcp_argument({**reference, "name": original}, name, value, arguments)
        uri = reference.get("uri")
        for agent in self._agents.values():
            if any(one.get("uriTemplate") == uri for one in agent.get_mcp_resource_templates()):
                return agent.complete_mcp_argument(reference, name, value, arguments)
        return []

    def set_mcp_logging_level(self, level: str) -> None:
        for agent in self._agents.values():
            agent.set_mcp_logging_level(level)

    def add_mcp_listener(self, listener: Callable[[str, str | None], None]) -> Callable[[], None]:
        """Pass the changes of all agents to `listener`. Returns a function that ends this."""
        removers = [agent.add_mcp_listener(listener) for agent in self._agents.values()]

        def remove() -> None:
            for one in removers:
                one()

        return remove

    def _find(self, listing: _Listing, kind: str, name: str) -> tuple[ServableAgent, str]:
        for namespaced, agent, definition in self._named(listing):
            if namespaced == name:
                return agent, definition["name"]
        raise ValueError(f"Unknown {kind}: {name}")

    def _named(self, listing: _Listing) -> Iterator[tuple[str, ServableAgent, dict[str, Any]]]:
        """Each definition with its namespaced name and its agent. An agent that fails is logged and left out."""
        for namespace, agent in self._agents.items():
            try:
                definitions = listing(agent)
            except Exception as error:  # noqa: BLE001 - an agent is the application's code
                logger.error("agent_left_out", agent=namespace, error=exception_text(error))
                continue
            for definition in definitions:
                yield f"{namespace}_{definition.get('name')}", agent, definition


def namespace_of(agent: object) -> str:
    """The default namespace of an agent: ``code`` for a `CodeAgent`."""
    name = type(agent).__name__
    return (name.removesuffix("Agent") or name).lower()
