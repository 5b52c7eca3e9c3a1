"""A conversation with any model: the messages of an agent, and the model's completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gaia.agents.base.agent_result import Usage

Message = dict[str, Any]
"""A message in the form of OpenAI's chat completions: ``role``, ``content``, ``tool_calls``, ``tool_call_id``."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as the model wrote it, unchecked."""

    id: str
    """The model's own id of this call."""
    name: str
    """The tool, as the model wrote it."""
    arguments: Any
    """JSON text, possibly malformed."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a model."""

    text: str
    """The model's text; empty if it only requests calls."""
    tool_calls: tuple[RequestedCall, ...] = ()
    """The requested calls, in order."""
    usage: Usage = field(default_factory=Usage)
    """The tokens of this request."""
    finish_reason: str | None = None
    """The endpoint's reason for the end: ``stop``, ``tool_calls``, ``length``, ``content_filter``."""


@runtime_checkable
class ChatModel(Protocol):
    """The interface of an agent's ``llm``, which `gaia.agents.base.llm.OpenAIChat` and any similar object implement."""

    def complete(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], on_text: Callable[[str], None]
    ) -> Completion:
        """Let the model answer; `on_text` receives its text as it arrives. Raises `LLMError`.

        Runs on its own thread. A waiting model can check `current_scope` to learn that its answer is no longer wanted.
        """
        ...


class CompletionBuilder:
    """Builds a completion from a stream's chunks, without I/O. Any attribute of OpenAI's chunks may be missing."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[_CallParts] = []
        self._by_index: dict[Any, _CallParts] = {}
        self._usage = Usage()
        self._finish_reason: str | None = None
        self.received = False

    def add(self, chunk: Any) -> str:
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            # Some endpoints repeat the count so far in each chunk, so the last count is used.
            self._usage = _usage_of(usage)
        choices = getattr(chunk, "choices", None)
        if not choices:
            return ""
        choice = choices[0]
        self._finish_reason = getattr(choice, "finish_reason", None) or self._finish_reason
        message = getattr(choice, "delta", None) or getattr(choice, "message", None)
        self.received |= message is not None or self._finish_reason is not None
        text = getattr(message, "content", None) or getattr(message, "refusal", None)
        text = text if isinstance(text, str) else ""
        if text:
            self._text.append(text)
        for part in getattr(message, "tool_calls", None) or ():
            self._add_call(part)
        return text

    def _add_call(self, part: Any) -> None:
        index, identifier, function = (getattr(part, name, None) for name in ("index", "id", "function"))
        call = self._by_index.get(index) if index is not None else None
        if call is None and index is None and self._calls and identifier in (None, self._calls[-1].id):
            call = self._calls[-1]
        # Some endpoints give all calls the same index. A new id then means a new call.
        if call is None or (identifier and call.id and identifier != call.id):
            call = _CallParts()
            self._calls.append(call)
            self._by_index[index] = call
        call.id = call.id or identifier or ""
        call.name = call.name or getattr(function, "name", None) or ""
        arguments = getattr(function, "arguments", None)
        if arguments is not None:
            call.arguments.append(arguments)

    def build(self) -> Completion:
        """The completion so far. A call with a missing or repeated id gets a new one."""
        calls: list[RequestedCall] = []
        taken: set[str] = set()
        for number, call in enumerate(self._calls, 1):
            identifier = call.id if call.id and call.id not in taken else f"call_{number}"
            taken.add(identifier)
            calls.append(RequestedCall(identifier, call.name, call.joined_arguments()))
        return Completion("".join(self._text), tuple(calls), self._usage, self._finish_reason)


@dataclass(slots=True)
class _CallParts:
    id: str = ""
    name: str = ""
    arguments: list[Any] = field(default_factory=list)

    def joined_arguments(self) -> Any:
        if len(self.arguments) == 1:
            return self.arguments[0]
        return "".join(str(part) for part in self.arguments)


def _usage_of(usage: Any) -> Usage:
    def count(name: str) -> int:
        value = getattr(usage, name, None)
        return value if isinstance(value, int) else 0

    return Usage(count("prompt_tokens"), count("completion_tokens"))
