"""An agent with one of everything that a gateway has to pass on, in either era. Its URIs begin with ``$NAME``."""

import os
import threading
from typing import Any, ClassVar

from gaia import SilentConsole
from gaia.agents.base import Agent, MCPAgent
from gaia.agents.base.mcp_context import MCPContext
from tests.waiting import PATIENCE

NAME = os.environ.get("NAME", "agent")

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PROMPT = [{"role": "user", "content": {"type": "text", "text": "The capital of France?"}}]
ADDED = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
}
TEXT = f"{NAME}:///text"
TEMPLATE = f"{NAME}:///numbers/{{number}}"


class CombinationAgent(MCPAgent, Agent):
    """Its tools are the methods that begin with ``do_``."""

    cancelled: ClassVar[set[str]] = set()
    """Owned by `changed`."""
    changed: ClassVar = threading.Condition()
    has_more = False
    changes = 0

    def _get_system_prompt(self) -> str:
        return "You are passed on."

    def _create_console(self) -> SilentConsole:
        return SilentConsole()

    def _register_tools(self) -> None:
        pass

    def get_mcp_instructions(self) -> str:
        return "Use with care."

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        names = [name.removeprefix("do_") for name in vars(type(self)) if name.startswith("do_")]
        simple = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in names]
        more = [{"name": "extra", "description": "At times.", "inputSchema": {"type": "object"}}]
        return [ADDED, *simple, *(more if self.has_more else [])]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool_name == "add":
            return {"sum": arguments["a"] + arguments["b"]}
        tool = getattr(self, f"do_{tool_name}", None)
        if tool is None:
            raise ValueError(f"Unknown tool: {tool_name}")
        return {"said": tool(self.mcp_context, **arguments)}

    def do_echo(self, _context: MCPContext, text: str) -> str:
        return text

    def do_fail(self, _context: MCPContext) -> str:
        raise ValueError("it cannot be done")

    def do_count(self, context: MCPContext) -> str:
        for number in (1, 2, 3):
            context.report_progress(number, 3, f"step {number}")
        return "3"

    def do_log(self, context: MCPContext) -> str:
        context.log("debug", "quiet")
        context.log("warning", "loud")
        return "logged"

    def do_hang(self, context: MCPContext, key: str) -> str:
        over = threading.Event()
        context.on_cancel(over.set)
        over.wait()
        with self.changed:
            self.cancelled.add(key)
            self.changed.notify_all()
        return "cancelled"

    def do_wait_for_cancelled(self, _context: MCPContext, key: str) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: key in self.cancelled, PATIENCE)

    def do_ask_person(self, context: MCPContext) -> str:
        answer = context.elicit("Who?", PERSON)
        return str(answer["content"]["name"]) if answer["action"] == "accept" else str(answer["action"])

    def do_ask_model(self, context: MCPContext) -> str:
        return str(context.sample(PROMPT, max_tokens=5)["content"]["text"])

    def do_ask_roots(self, context: MCPContext) -> list[str]:
        return [root["uri"] for root in context.list_roots()]

    def do_ask_twice(self, context: MCPContext) -> str:
        first = context.elicit("First?", PERSON, key="first")["content"]["name"]
        second = context.elicit("Second?", PERSON, key="second")["content"]["name"]
        return f"{first} and {second}"

    def do_change_tools(self, _context: MCPContext) -> None:
        self.has_more = not self.has_more
        self.notify_mcp_change("tools")

    def do_change_text(self, _context: MCPContext) -> None:
        self.changes += 1
        self.notify_mcp_change("resource", TEXT)

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [{"uri": TEXT, "name": "Text", "mimeType": "text/plain"}]

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        return [{"uriTemplate": TEMPLATE, "name": "Number"}]

    def read_mcp_resource(self, uri: str) -> Any:
        if uri == TEXT:
            return f"changed {self.changes} times"
        number = uri.removeprefix(f"{NAME}:///numbers/")
        if number.isdigit():
            return f"number {number}"
        raise ValueError(f"Unknown resource: {uri}")

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        return [{"name": "greet", "description": "Greet", "arguments": [{"name": "who", "required": True}]}]

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        words = ("ada", "alan") if reference["type"] == "ref/prompt" else ("1", "10")
        return [word for word in words if word.startswith(value)]
