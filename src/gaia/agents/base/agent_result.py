"""The outcome of an agent's run: the answer, and the steps to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["success", "error", "refused", "cancelled"]
StopReason = Literal["answer", "step_limit", "length", "content_filter", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint counted them; zeros if it does not count."""

    prompt_tokens: int = 0
    """Tokens that the model read."""
    completion_tokens: int = 0
    """Tokens that the model wrote."""

    @property
    def total_tokens(self) -> int:
        """The sum of both."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model requested, and its outcome."""

    id: str
    """The model's own id of this call."""
    name: str
    """The tool's key in the registry; the model's text if no tool has that name."""
    arguments: Mapping[str, Any] | None
    """None if the model did not write a JSON object."""
    outcome: Outcome
    """``refused`` by the confirmation gate, ``cancelled`` with the run; ``error`` also for a call that was not made."""
    content: str
    """The text for the model: the result within the budget, or the error."""
    duration: float
    """Seconds; 0 for a call that was not made."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the model, and the calls in its answer."""

    text: str
    """The model's text; empty if the model only requested calls."""
    tool_calls: tuple[ToolCall, ...]
    """In the order of the model's answer."""
    usage: Usage
    """Of this request."""
    duration: float
    """Seconds, including tool calls."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The result of a run. `str` returns the answer."""

    answer: str
    """The model's last text; empty if it wrote none."""
    steps: tuple[Step, ...]
    """One for each request to the model, in order."""
    usage: Usage
    """The sum over all steps."""
    stop_reason: StopReason
    """Why the run ended.

    ``answer`` is the normal end. ``step_limit``: the model wanted to continue. ``length``: the endpoint cut the answer
    off at its token limit. ``content_filter``: the endpoint withheld it. ``cancelled``: by `Agent.cancel`. ``error``:
    only in the `result` of an `LLMError`.
    """
    messages: tuple[dict[str, Any], ...] = ()
    """The conversation without the system prompt; ``run(..., history=result.messages)`` continues it."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of all steps, in order."""
        return tuple(call for step in self.steps for call in step.tool_calls)

    def __str__(self) -> str:
        return self.answer
