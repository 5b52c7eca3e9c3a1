"""`Agent`: a system prompt, a console and tools, and a model that uses them."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from gaia.agents.base import agent_spans
from gaia.agents.base.agent_result import AgentResult
from gaia.agents.base.chat import ChatModel, Message
from gaia.agents.base.confirmation import ConfirmationGate, ConfirmationPolicy, ConfirmationRequest
from gaia.agents.base.console import AgentConsole, Console, SilentConsole
from gaia.agents.base.llm import LLMSettings, OpenAIChat
from gaia.agents.base.loop import Run
from gaia.agents.base.registry import ToolRegistry
from gaia.agents.base.tool_executor import ResultBudget, ToolExecutor
from gaia.agents.base.tools import _TOOL_REGISTRY, resolve_tool_name
from gaia.runtime.construction import similar_arguments, takes_keyword_after
from gaia.runtime.locks import reentrant_lock

_MODEL_KEYWORDS = frozenset(("base_url", "claude_model", "model_id", "use_chatgpt", "use_claude"))
_KEYWORDS_OF_AMDS_AGENT = _MODEL_KEYWORDS | {
    *("debug_prompts", "device", "max_consecutive_repeats", "max_plan_iterations", "min_context_size", "output_dir"),
    *("output_handler", "show_prompts", "show_stats", "skill_set", "skip_lemonade", "streaming"),
}
"""Arguments that some version of AMD's GAIA has for its ``Agent``, and that this class lacks."""

_MIXIN_ARGUMENTS = {"mcp_servers", "auto_load_config", "config_file"}
"""Arguments that are often passed to an agent whose class lacks the mixin."""


class Agent(ABC):
    """Base class of all agents.

    A subclass defines the agent's prompt (`_get_system_prompt`). It may also define the console (`_create_console`) and
    the tools (`_register_tools`). Construction is cooperative: after its own setup, an agent passes unknown keyword
    arguments to the next class in the method resolution order.

    A mixin adds to the system prompt by defining ``_get_prompt_part(self) -> str``.
    """

    def __init__(
        self,
        silent_mode: bool = False,
        debug: bool = False,
        llm: LLMSettings | ChatModel | None = None,
        max_steps: int = 20,
        *,
        confirm: ConfirmationPolicy | None = None,
        on_confirmation: Callable[[ConfirmationRequest], bool] | None = None,
        max_parallel_tools: int = 8,
        max_result_bytes: int = 16_384,
        result_directory: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the agent up; nothing is connected or asked yet.

        `llm` is the model for `run`; None takes it from the environment when a run begins (see `LLMSettings`). A run
        asks the model at most `max_steps` times and makes at most `max_parallel_tools` calls of one step at once. A
        tool result of more than `max_result_bytes` reaches the model shortened, with the full text in a file in
        `result_directory`, or in a temporary one (see `ResultBudget`).

        `confirm` is the policy of the `ConfirmationGate`, and `on_confirmation` asks the person. By default the console
        asks, if it is an `AgentConsole` on a terminal or any other with a ``confirm`` method. The default policy is
        ``destructive`` if there is such a function or console, and otherwise ``marked``: then calls of tools marked
        destructive are refused. In silent mode the console is a `SilentConsole`.

        Keywords that only the ``Agent`` of AMD's GAIA has, such as `skip_lemonade` and `model_id`, are ignored, unless
        a later class takes them; a DeprecationWarning names them.
        """
        self.silent_mode = silent_mode
        self.debug = debug
        self.llm = llm
        self.max_steps = max_steps
        self.max_parallel_tools = max(1, max_parallel_tools)
        self.result_budget = ResultBudget(max_result_bytes, result_directory)
        self._runs: set[Run] = set()
        self._runs_lock = reentrant_lock()
        self._prompt_revision = object()
        self._cached_prompt: tuple[object, str] | None = None
        self.console: Console = SilentConsole() if silent_mode else self._create_console()
        ask = on_confirmation or _confirm_method(self.console)
        self.confirmation_gate = ConfirmationGate(confirm or ("destructive" if ask else "marked"), ask)
        registry = self._tools_registry
        with registry.collecting() if isinstance(registry, ToolRegistry) else contextlib.nullcontext():
            self._register_tools()
        _drop_foreign_keywords(type(self), kwargs)
        # Last, because a later mixin may use the agent: MCPClientMixin prints, and adds tools.
        next_init = super().__init__
        if kwargs and getattr(next_init, "__objclass__", None) is object:
            raise TypeError(_unexpected(type(self), kwargs))
        next_init(**kwargs)

    @cached_property
    def _tools_registry(self) -> Any:
        """The tools that this agent sees. Made on first need, because a mixin's constructor may run before this one."""
        return ToolRegistry(_TOOL_REGISTRY)

    @abstractmethod
    def _get_system_prompt(self) -> str:
        """The agent's own part of the system prompt."""

    def _create_console(self) -> Console:
        """The console of the agent, by default an `AgentConsole`; not called in silent mode."""
        return AgentConsole()

    def _register_tools(self) -> None:  # noqa: B027 - an agent may have no tools of its own
        """Register the agent's own tools, usually with the `gaia.agents.base.tools.tool` decorator; by default none."""

    def run(self, prompt: str, *, history: Iterable[Message] = (), max_steps: int | None = None) -> AgentResult:
        """Let the model work on `prompt` with the agent's tools until it answers.

        `history` is the earlier conversation, such as the ``messages`` of an earlier result; `max_steps` overrides the
        agent's. Failed, refused and malformed calls are reported to the model. Several threads may call this at once.

        Raises `gaia.agents.base.llm.LLMError`: at once if no endpoint is configured, and if the endpoint fails; its
        ``result`` has the work done until then. On Ctrl-C all calls under way are cancelled before KeyboardInterrupt
        passes on.
        """
        run = Run(self, prompt, history, self.max_steps if max_steps is None else max_steps)
        # Cancellable from here on: importing the first model of a process takes a moment.
        with self._runs_lock:
            self._runs.add(run)
        try:
            with self._chat_model() as model, agent_spans.agent_span(type(self).__name__):
                return run.execute(model)
        finally:
            with self._runs_lock:
                self._runs.discard(run)

    def cancel(self) -> bool:
        """End all runs of this agent, from any thread; True if there was one.

        They return with the stop reason ``cancelled``. Calls to MCP servers are cancelled, and the servers notified. A
        native tool cannot be stopped from outside: it continues, and its result is discarded. A tool can ask
        `gaia.runtime.cancellation.current_scope` whether it is still needed.
        """
        with self._runs_lock:
            runs = list(self._runs)
        cancelled = [run.cancel() for run in runs]
        return any(cancelled)

    @contextlib.contextmanager
    def _chat_model(self) -> Iterator[ChatModel]:
        llm = self.llm
        if llm is None or isinstance(llm, LLMSettings):
            with contextlib.closing(OpenAIChat(llm)) as model:
                yield model
        elif isinstance(llm, ChatModel):
            yield llm
        else:
            raise TypeError(f"llm must be an LLMSettings or have a method complete(), not {llm!r}")

    @property
    def system_prompt(self) -> str:
        """The agent's own part, the mixins' parts and the names of the tools.

        Composed when first read, and kept until `rebuild_system_prompt`. An assigned text replaces it, also until then.
        """
        cached = self._cached_prompt
        if cached is None or cached[0] is not self._prompt_revision:
            # Read the revision before the tools, so that a text composed while they change is not kept.
            revision = self._prompt_revision
            cached = self._cached_prompt = (revision, self._compose_system_prompt())
        return cached[1]

    @system_prompt.setter
    def system_prompt(self, prompt: str) -> None:
        self._cached_prompt = (self._prompt_revision, prompt)

    def rebuild_system_prompt(self) -> None:
        """Compose the system prompt again when it is next read. Thread-safe."""
        self._prompt_revision = object()

    def _compose_system_prompt(self) -> str:
        parts = [self._get_system_prompt()]
        for cls in type(self).__mro__:
            # Each class's own definition, so that two mixins with a part do not hide each other.
            part: Callable[[Any], str] | None = vars(cls).get("_get_prompt_part")
            if part is not None:
                parts.append(part(self))
        if tools := self._format_tools_for_prompt():
            parts.append(f"AVAILABLE TOOLS:\n{tools}")
        return "\n\n".join(part for part in parts if part)

    def _format_tools_for_prompt(self) -> str:
        """One line for each tool, with the name to call it by. The ``tools`` of the request have the rest."""
        return "\n".join(f"- {name}" for name in self._tools_registry.copy())

    def _resolve_tool_name(self, tool_name: str) -> str:
        return resolve_tool_name(tool_name, self._tools_registry)

    def _execute_tool(self, tool_name: str, tool_args: dict[str, Any]) -> Any:
        """Run a tool and return its result.

        Any failure is returned as ``{"status": "error", "error": message}``, for the model: an unknown or ambiguous
        name, arguments that do not fit, a call that was not confirmed, an exception of the tool. Only KeyboardInterrupt
        and SystemExit are raised.
        """
        return self._tool_executor.execute(tool_name, tool_args)

    @property
    def _tool_executor(self) -> ToolExecutor:
        # Made for each use, because its parts may be replaced at any time.
        executor = ToolExecutor(self._tools_registry, self._resolve_tool_name, self.confirmation_gate, self.console)
        # A method of `MCPClientMixin`, which may come later in the bases.
        explain_missing = getattr(self, "_explain_missing_mcp_tool", None)
        return executor if explain_missing is None else replace(executor, explain_missing=explain_missing)


def _confirm_method(console: object) -> Callable[[ConfirmationRequest], bool] | None:
    if isinstance(console, AgentConsole) and not console.interactive:
        return None
    return getattr(console, "confirm", None)


def _drop_foreign_keywords(cls: type[Agent], arguments: dict[str, Any]) -> None:
    foreign = sorted(_KEYWORDS_OF_AMDS_AGENT.intersection(arguments))
    ignored = [name for name in foreign if not takes_keyword_after(cls, Agent, name)]
    if not ignored:
        return
    for name in ignored:
        del arguments[name]
    pronoun = "it" if len(ignored) == 1 else "them"
    message = f"{cls.__name__}() ignores {', '.join(ignored)}: gaia-mcp has no use for {pronoun}"
    if not _MODEL_KEYWORDS.isdisjoint(ignored):
        message += "; llm=LLMSettings(base_url, model) says which model is used"
    # Skip gaia's own constructors, so that the warning points to that code.
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("gaia."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def _unexpected(cls: type[Agent], arguments: Iterable[str]) -> str:
    hint = similar_arguments(cls, arguments, _MIXIN_ARGUMENTS)
    message = f"{cls.__name__}() got unexpected keyword arguments: {', '.join(sorted(arguments))}{hint}"
    if _MIXIN_ARGUMENTS.isdisjoint(arguments) and not any(name in hint for name in _MIXIN_ARGUMENTS):
        return message
    return f"{message} (MCPClientMixin takes them: class {cls.__name__}(Agent, MCPClientMixin))"


class ApiAgent(Agent):
    """Base class for agents that are served as a model; both methods have defaults."""

    def get_model_id(self) -> str:
        """The model's name in the API: ``gaia-code`` for a class named ``CodeAgent``."""
        name = type(self).__name__
        return f"gaia-{(name.removesuffix('Agent') or name).lower()}"

    def get_model_info(self) -> dict[str, Any]:
        """The limits in tokens, and a description of the agent."""
        return {
            "max_input_tokens": 8192,
            "max_output_tokens": 4096,
            "description": f"GAIA {type(self).__name__}",
        }
