"""What an agent tells the person in front of it.

Names, descriptions and errors can come from an MCP server, so nothing in a message is trusted: control characters and
terminal sequences are removed, and markup is shown as the text that it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from gaia.agents.base.tools import get_tool_display_name

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

__all__ = ["AgentConsole", "Console", "SilentConsole"]

_TOOL_ACTIVITIES = {
    "query_documents": "Searching through indexed documents...",
}
"""Tools whose work is told in words; any other tool is shown by its name."""

_TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]"  # the rest of ECMA-35
)
# The bidirectional controls are among them: they make a text read differently from what it says.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Console(Protocol):
    """What an agent needs of a console."""

    def print_tool_usage(self, tool_name: str) -> None: ...

    def print_info(self, message: str) -> None: ...

    def print_success(self, message: str) -> None: ...

    def print_warning(self, message: str) -> None: ...

    def print_error(self, message: str) -> None: ...


class AgentConsole:
    """Prints to standard output with rich, which is imported at the first message."""

    def __init__(self) -> None:
        self._rich: RichConsole | None = None

    def print_tool_usage(self, tool_name: str) -> None:
        """Say which tool is about to run: `tool_name` is its key in the registry."""
        self._print("🔧 Executing operation", style="bold blue")
        if tool_name in _TOOL_ACTIVITIES:
            self._print(f"  {_TOOL_ACTIVITIES[tool_name]}")
        else:
            self._print(f"  Tool: {_one_line(get_tool_display_name(tool_name))}")

    def print_info(self, message: str) -> None:
        self._print(message)

    def print_success(self, message: str) -> None:
        self._print(f"✅ {message}", style="green")

    def print_warning(self, message: str) -> None:
        self._print(f"⚠️ {message}", style="yellow")

    def print_error(self, message: str) -> None:
        self._print(f"❌ {message}", style="red")

    def _print(self, message: str, style: str = "") -> None:
        from rich.text import Text

        console = self._console()
        # A terminal that knows no emoji gets a question mark, and the agent goes on.
        text = _clean(message).encode(console.encoding, "replace").decode(console.encoding)
        console.print(Text(text, style=style), soft_wrap=True)

    def _console(self) -> RichConsole:
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole()
        return self._rich


class SilentConsole:
    """Accepts every message and prints nothing."""

    def print_tool_usage(self, tool_name: str) -> None:
        pass

    def print_info(self, message: str) -> None:
        pass

    def print_success(self, message: str) -> None:
        pass

    def print_warning(self, message: str) -> None:
        pass

    def print_error(self, message: str) -> None:
        pass


def _clean(text: str) -> str:
    """Remove what a terminal would act on instead of showing it; line breaks and tabs stay."""
    return _CONTROL_CHARACTER.sub("", _TERMINAL_SEQUENCE.sub("", text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
