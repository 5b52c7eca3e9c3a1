"""Consoles show an agent's messages to a person.

Names, descriptions and errors may come from an MCP server, so no message is trusted: control characters and terminal
sequences are removed, and markup is shown as plain text.
"""

from __future__ import annotations

import json
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from gaia.agents.base.agent_result import Outcome
from gaia.agents.base.confirmation import ConfirmationRequest
from gaia.agents.base.tools import get_tool_display_name
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.untrusted_text import clean, escaped, one_line

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

_TOOL_ACTIVITIES = {"query_documents": "Searching through indexed documents..."}

_PAGE = 4000
_PAGE_LINES = 60


class Console(Protocol):
    """The interface of an agent's console. Tools run on several threads, so messages come from several threads.

    A console that also has ``confirm(request: ConfirmationRequest) -> bool`` is asked before tool calls.
    """

    def print_step(self, step: int, max_steps: int) -> None: ...
    def print_text(self, text: str) -> None: ...
    def end_text(self) -> None: ...
    def print_tool_usage(self, tool_name: str) -> None: ...
    def print_tool_outcome(self, tool_name: str, outcome: Outcome, duration: float) -> None: ...
    def print_info(self, message: str) -> None: ...
    def print_success(self, message: str) -> None: ...
    def print_warning(self, message: str) -> None: ...
    def print_error(self, message: str) -> None: ...


class AgentConsole:
    """Prints to standard output with rich, which is imported for the first message."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Keeps related lines together on the screen."""

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked, because standard input and output are a terminal."""
        return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))

    def print_step(self, step: int, max_steps: int) -> None:
        """Show the number of the present request to the model, of at most `max_steps`."""
        self._print(f"Step {step} of {max_steps}", style="dim")

    def print_text(self, text: str) -> None:
        """Print a piece of the model's answer, which continues until `end_text`."""
        self._print(text, end="")

    def end_text(self) -> None:
        """End the line of `print_text`."""
        self._print("")

    def print_tool_usage(self, tool_name: str) -> None:
        """Show the tool that is about to run. `tool_name` is its key in the registry."""
        with self._lock:
            self._print("🔧 Executing operation", style="bold blue")
            if tool_name in _TOOL_ACTIVITIES:
                self._print(f"  {_TOOL_ACTIVITIES[tool_name]}")
            else:
                self._print(f"  Tool: {one_line(get_tool_display_name(tool_name))}")

    def print_tool_outcome(self, tool_name: str, outcome: Outcome, duration: float) -> None:
        """Show how a call ended, and after how many seconds."""
        name = one_line(get_tool_display_name(tool_name))
        if outcome == "success":
            self._print(f"  ✓ {name} ({duration:.1f} s)", style="green")
        else:
            self._print(f"  ✗ {name}: {outcome} ({duration:.1f} s)", style="red")

    def confirm(self, request: ConfirmationRequest) -> bool:
        """Show a tool call and ask whether to make it. Any answer except yes, and the end of the input, means no.

        Long arguments are shown page by page, and the call can be made only after the last page.
        """
        # Characters that a terminal would hide are escaped, because the person has to see everything.
        arguments = escaped(json.dumps(request.arguments, indent=2, ensure_ascii=False, default=str))
        with self._lock:
            self._print(f"The model wants to call {one_line(request.display_name)} with", style="bold yellow")
            shown = 0
            while shown < len(arguments):
                if shown:
                    hidden = len(arguments) - shown
                    self._print(f"HIDDEN: {hidden:,} of {len(arguments):,} characters.", style="bold yellow")
                    self._print("Press Enter to see more; anything else refuses the call. ", end="")
                    if sys.stdin.readline() != "\n":
                        return False
                page = "".join(arguments[shown : shown + _PAGE].splitlines(keepends=True)[:_PAGE_LINES])
                self._print(page.removesuffix("\n"))
                shown += len(page)
            self._print("Make this call? [y/N] ", end="")
            answer = sys.stdin.readline()
        return answer.strip().casefold() in {"y", "yes"}

    def print_info(self, message: str) -> None:
        """Print a neutral message."""
        self._print(message)

    def print_success(self, message: str) -> None:
        """Print a message about a success."""
        self._print(f"✅ {message}", style="green")

    def print_warning(self, message: str) -> None:
        """Print a message about something that the person may want to change."""
        self._print(f"⚠️ {message}", style="yellow")

    def print_error(self, message: str) -> None:
        """Print a message about a failure."""
        self._print(f"❌ {message}", style="red")

    def _print(self, message: str, style: str = "", end: str = "\n") -> None:
        from rich.text import Text

        with self._lock:
            # A terminal without emoji shows a question mark, and the agent continues.
            text = clean(message).encode(self._rich.encoding, "replace").decode(self._rich.encoding)
            self._rich.print(Text(text, style=style), soft_wrap=True, end=end)

    @cached_property
    def _rich(self) -> RichConsole:
        from rich.console import Console as RichConsole

        return RichConsole()


class SilentConsole:
    """Accepts every message and prints nothing. A base for consoles that show only some messages."""

    def print_step(self, step: int, max_steps: int) -> None: ...
    def print_text(self, text: str) -> None: ...
    def end_text(self) -> None: ...
    def print_tool_usage(self, tool_name: str) -> None: ...
    def print_tool_outcome(self, tool_name: str, outcome: Outcome, duration: float) -> None: ...
    def print_info(self, message: str) -> None: ...
    def print_success(self, message: str) -> None: ...
    def print_warning(self, message: str) -> None: ...
    def print_error(self, message: str) -> None: ...
