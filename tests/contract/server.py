"""The server of the contract: what its tools do is the same over every wire."""

from __future__ import annotations

import threading
from typing import Any

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp.errors import JsonRpcError
from gaia.testing import FakeServer, FakeTool
from tests.waiting import PATIENCE

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class ContractServer(FakeServer):
    """A fake server with a tool for each thing that can become of a call."""

    def __init__(self, revision: str) -> None:
        self.released = threading.Event()
        """Calls of ``hold`` wait for it, or for their cancellation."""

        def hold(context: MCPContext) -> str:
            context.on_cancel(self.released.set)
            assert self.released.wait(PATIENCE)
            return "released"

        super().__init__(
            "contract",
            [
                echo,
                FakeTool(echo, name="look", annotations={"readOnlyHint": True}),
                fail,
                refuse,
                count,
                hold,
                ask,
                ask_twice,
                FakeTool(echo, name="denied"),
            ],
            protocol=revision,
        )

    def texts(self, tool: str) -> list[Any]:
        """The argument ``text`` of each call of a tool, in order."""
        return [call.arguments.get("text") for call in self.calls if call.tool == tool]

    def generations(self, tool: str) -> list[int]:
        """Which starts of the server the calls of a tool have reached."""
        return [call.generation for call in self.calls if call.tool == tool]


def echo(text: str = "") -> str:
    """Return the text."""
    return text


def fail(text: str = "") -> str:
    """Report an error of the tool."""
    raise ValueError(f"failed: {text}")


def refuse() -> str:
    """Answer with an error of the protocol."""
    raise JsonRpcError(-32050, "refused", {"why": "because"})


def count(to: int, context: MCPContext) -> str:
    """Report progress."""
    for number in range(1, to + 1):
        context.report_progress(number, to, f"at {number}")
    return str(to)


def ask(context: MCPContext) -> str:
    """Ask a person for a name."""
    answer = context.elicit("Who?", NAMED)
    return str(answer["content"]["name"] if answer["action"] == "accept" else answer["action"])


def ask_twice(context: MCPContext) -> str:
    """Ask for two names, one after the other."""
    first = context.elicit("First?", NAMED)["content"]["name"]
    second = context.elicit("Second?", NAMED)["content"]["name"]
    return f"{first} and {second}"
