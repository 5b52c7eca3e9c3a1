"""Agents that the tests serve."""

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from gaia import SilentConsole
from gaia.agents.base import Agent, MCPAgent
from gaia.mcp import MCPClientMixin
from tests.waiting import PATIENCE

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

print("printed while the module is imported")


def tool(name: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}", "inputSchema": schema or {"type": "object"}, **more}


class QuietAgent(MCPAgent, Agent):
    """What an agent has to have, and nothing else."""

    def _get_system_prompt(self) -> str:
        return "You are served."

    def _create_console(self) -> SilentConsole:
        return SilentConsole()

    def _register_tools(self) -> None:
        pass

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [tool("upper", TEXT)]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"text": arguments["text"].upper()}


class TrickyAgent(QuietAgent):
    """Prints, fails, waits and returns odd things."""

    def __init__(self, **kwargs: Any) -> None:
        print("printed while the agent is made")
        super().__init__(**kwargs)
        self.waiting = threading.Barrier(8)
        self.was_cancelled = threading.Event()

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [
            tool("upper", TEXT),
            tool("print"),
            tool("secret-failure"),
            tool("clear-failure"),
            tool("error-dict"),
            tool("odd-values"),
            tool("not-known"),
            tool("meet"),
            tool("wait-for-cancel"),
            tool("was-cancelled"),
            tool("broken-promise", outputSchema={"type": "object", "required": ["missing"]}),
            tool("broken-schema", {"type": "object", "properties": {"a": {"type": "nonsense"}}}),
            {"description": "has no name"},
        ]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        match tool_name:
            case "upper":
                return {"text": arguments["text"].upper()}
            case "print":
                print("printed by a tool")
                os.write(1, b"written to descriptor 1\n")
                child = "import sys; print('printed by a child', repr(sys.stdin.read()))"
                subprocess.run([sys.executable, "-I", "-S", "-c", child], check=True)
                return {"printed": True}
            case "secret-failure":
                raise RuntimeError("the password is hunter2")
            case "clear-failure":
                raise ValueError("there is no such note")
            case "error-dict":
                return {"error": "it did not work"}
            case "odd-values":
                return {"path": Path("/a/b"), "set": {1}, 3: "three"}
            case "meet":
                return {"met": self.waiting.wait(timeout=PATIENCE)}
            case "wait-for-cancel":
                self.mcp_context.log("info", "waiting")
                self.mcp_context.on_cancel(self.was_cancelled.set)
                self.was_cancelled.wait(PATIENCE)
                return {}
            case "was-cancelled":
                return {"cancelled": self.was_cancelled.wait(PATIENCE)}
            case "broken-promise":
                return {}
        raise ValueError(f"Unknown tool: {tool_name}")


class RelayAgent(QuietAgent, MCPClientMixin):
    """Uses an MCP server itself: each call of `relay` is a call of that server's `echo`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(auto_load_config=False, **kwargs)
        self.ended: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        if path := os.environ.get("TEST_SPANS"):
            export_spans(Path(path))
        server = [sys.executable, "-m", os.environ.get("TEST_SERVER", "gaia.mcp.demo_server")]
        restart = {"initialDelay": 0.05, "maxRestarts": 50}
        self.connect_mcp_server("demo", {"command": server[0], "args": server[1:], "restart": restart})

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [tool("relay", TEXT), tool("crash-server"), tool("server-pid"), tool("sleep"), tool("was-cancelled")]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        client = self.get_mcp_client("demo")
        assert client is not None
        if tool_name == "crash-server":
            return client.call_tool("crash", {})
        if tool_name == "server-pid":
            return {"pid": client.status.pid}
        if tool_name == "sleep":
            self.mcp_context.log("info", "sleeping")
            result = client.call_tool("sleep", {"seconds": 3600}, timeout=3600)
            self.ended.put(result)
            return result
        if tool_name == "was-cancelled":
            return self.ended.get(timeout=PATIENCE)
        return client.call_tool("echo", {"text": arguments["text"]})


def export_spans(path: Path) -> None:
    """Write each span of this process to a file, as a line of JSON."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    out = path.open("a")
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
