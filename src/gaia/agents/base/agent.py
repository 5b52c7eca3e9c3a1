"""`Agent`: a system prompt, a console and tools."""

from __future__ import annotations

import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from gaia.agents.base.console import Console, SilentConsole
from gaia.agents.base.tools import _TOOL_REGISTRY, AmbiguousToolName, ToolNotFound, resolve_tool_name
from gaia.log import get_logger

__all__ = ["Agent"]

logger = get_logger(__name__)

_NAME_ERRORS = (AmbiguousToolName, ToolNotFound)


class Agent(ABC):
    """Base class of all agents.

    A subclass says what the agent is (`_get_system_prompt`), how it speaks (`_create_console`) and what it can do
    (`_register_tools`). Construction is cooperative: after it has set itself up, an agent passes on the keyword
    arguments that it does not know to the next class in the method resolution order.

    A mixin adds to the system prompt by defining ``_get_prompt_part(self) -> str``.
    """

    def __init__(
        self,
        silent_mode: bool = False,
        debug: bool = False,
        llm: Any = None,
        max_steps: int = 20,
        **kwargs: Any,
    ) -> None:
        self.silent_mode = silent_mode
        self.debug = debug
        self.llm = llm
        self.max_steps = max_steps
        self._tools_registry: dict[str, dict[str, Any]] = _TOOL_REGISTRY
        self._prompt_revision = object()
        self._cached_prompt: tuple[object, str] | None = None
        self.console: Console = SilentConsole() if silent_mode else self._create_console()
        self._register_tools()
        # Last, because a mixin that comes later may use the agent: MCPClientMixin prints, and adds tools.
        next_init = super().__init__
        if kwargs and getattr(next_init, "__objclass__", None) is object:
            raise TypeError(f"{type(self).__name__}() got unexpected keyword arguments: {', '.join(sorted(kwargs))}")
        next_init(**kwargs)

    @abstractmethod
    def _get_system_prompt(self) -> str:
        """The agent's own part of the system prompt."""

    @abstractmethod
    def _create_console(self) -> Console:
        """The console to speak through; not called in silent mode."""

    @abstractmethod
    def _register_tools(self) -> None:
        """Register the agent's own tools, usually with the `gaia.agents.base.tools.tool` decorator."""

    @property
    def system_prompt(self) -> str:
        """The agent's own part, the mixins' parts and the list of tools.

        Composed when it is first read and kept until `rebuild_system_prompt`. A text that is assigned replaces it, also
        until then.
        """
        cached = self._cached_prompt
        if cached is None or cached[0] is not self._prompt_revision:
            # The revision is read before the tools are: a text composed while they change is not used again.
            revision = self._prompt_revision
            cached = self._cached_prompt = (revision, self._compose_system_prompt())
        return cached[1]

    @system_prompt.setter
    def system_prompt(self, prompt: str) -> None:
        self._cached_prompt = (self._prompt_revision, prompt)

    def rebuild_system_prompt(self) -> None:
        """Have the system prompt composed anew when it is next read. Thread-safe."""
        self._prompt_revision = object()

    def _compose_system_prompt(self) -> str:
        parts = [self._get_system_prompt()]
        for cls in type(self).__mro__:
            # Each class's own definition, so that two mixins with a part do not hide one another.
            part: Callable[[Any], str] | None = vars(cls).get("_get_prompt_part")
            if part is not None:
                parts.append(part(self))
        if tools := self._format_tools_for_prompt():
            parts.append(f"Available tools:\n{tools}")
        return "\n\n".join(part for part in parts if part)

    def _format_tools_for_prompt(self) -> str:
        """One line for each tool: ``- name(parameter: type, optional?: type): description``."""
        return "\n".join(_format_tool(name, entry) for name, entry in self._tools_registry.copy().items())

    def _resolve_tool_name(self, tool_name: str) -> str:
        """The registry key of the tool that `tool_name` means; see `gaia.agents.base.tools.resolve_tool_name`."""
        return resolve_tool_name(tool_name, self._tools_registry)

    def _execute_tool(self, tool_name: str, tool_args: dict[str, Any]) -> Any:
        """Run a tool and return what it returns.

        Whatever goes wrong comes back as ``{"status": "error", "error": message}``, for the model to read: a name that
        is unknown or ambiguous, arguments that do not fit, an exception of the tool. Only KeyboardInterrupt and
        SystemExit are raised.
        """
        try:
            key = self._resolve_tool_name(tool_name)
            entry = self._tools_registry[key]
            function = entry["function"]
            if problem := _check_arguments(key, entry.get("parameters") or {}, function, tool_args):
                return _error(problem)
            self.console.print_tool_usage(key)
            return function(**tool_args)
        except Exception as error:  # noqa: BLE001 - a tool is anybody's code, and its failure is the model's business
            logger.warning("tool_failed", tool=tool_name, error=repr(error))
            return _error(str(error) if isinstance(error, _NAME_ERRORS) else f"{type(error).__name__}: {error}")


def _error(message: str) -> dict[str, Any]:
    return {"status": "error", "error": message}


def _format_tool(name: str, entry: Mapping[str, Any]) -> str:
    parameters = ", ".join(
        f"{parameter}{'' if about.get('required') else '?'}: {about.get('type', 'any')}"
        for parameter, about in (entry.get("parameters") or {}).items()
    )
    description = str(entry.get("description") or "").strip()
    if name.startswith(f"mcp_{entry.get('_mcp_server')}_"):
        # The name says already which server it is.
        description = description.removeprefix(f"[MCP:{entry['_mcp_server']}]").strip()
    line = f"- {name}({parameters})" + (f": {description}" if description else "")
    return textwrap.indent(line, "  ").removeprefix("  ")


def _check_arguments(name: str, parameters: Mapping[str, Any], function: Callable[..., Any], arguments: Any) -> str:
    """What is wrong with the arguments of a call; empty if nothing is."""
    if not isinstance(arguments, dict):
        return f"Arguments of tool {name!r} must be an object, not {type(arguments).__name__}"
    problems = []
    missing = [key for key, about in parameters.items() if about.get("required") and key not in arguments]
    if missing:
        problems.append(f"missing required: {', '.join(missing)}")
    unknown = [str(key) for key in arguments if key not in parameters]
    # A function that takes any keyword judges for itself. So do MCP tools: their schemas may allow more than they list.
    if unknown and not _takes_any_keyword(function):
        problems.append(f"unknown: {', '.join(unknown)}")
    if not problems:
        return ""
    expected = ", ".join(f"{key}{'' if about.get('required') else '?'}" for key, about in parameters.items())
    return f"Wrong arguments for tool {name!r}: {'; '.join(problems)} (it takes: {expected or 'none'})"


def _takes_any_keyword(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Some functions written in C do not say what they take.
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
