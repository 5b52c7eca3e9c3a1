"""Has an agent answer the messages of a chat completion.

An agent answers with `Agent.run`. One that wants to do it differently, or to give its answer piece by piece, defines
``answer_chat(self, messages, emit)``: `messages` are as the client sent them, ``emit(text)`` sends a piece of the
answer to a client that streams, and what it returns is the whole answer, as a text or as an `AgentResult`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gaia.agents.base import ApiAgent
from gaia.agents.base.agent_result import AgentResult, Usage

_FINISH_REASONS = {"step_limit": "length", "length": "length", "content_filter": "content_filter"}
"""OpenAI's finish reasons for the stop reasons of a run, where they are not ``stop``."""


@dataclass(eq=False)
class RequestFailed(Exception):
    """Ends a request with an error in OpenAI's form; the client gets the message."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None


@dataclass(frozen=True)
class Answer:
    """What an agent answered."""

    text: str
    usage: Usage
    finish_reason: str


def checked_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages, with contents as text; raises `RequestFailed`."""
    if not isinstance(messages, list) or not messages:
        raise RequestFailed(400, "messages must be a list with at least one message")
    checked = [_message(message) for message in messages]
    if checked[-1]["role"] != "user":
        raise RequestFailed(400, "the last message must be the user's")
    return checked


def answer(agent: ApiAgent, messages: list[dict[str, Any]], emit: Callable[[str], None]) -> Answer:
    """Have the agent answer in this thread. Raises what the agent raises."""
    own: Callable[[list[dict[str, Any]], Callable[[str], None]], Any] | None = getattr(agent, "answer_chat", None)
    if own is not None:
        result = own(messages, emit)
    else:
        *history, last = messages
        result = agent.run(last["content"], history=history)
    if isinstance(result, AgentResult):
        return Answer(result.answer, result.usage, _FINISH_REASONS.get(result.stop_reason, "stop"))
    return Answer(str(result), Usage(), "stop")


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestFailed(400, "each message must be an object with a role")
    # Newer clients call the system's message so.
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role, "content": _text(message.get("content"))}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestFailed(400, "content must be a text, or a list of parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RequestFailed(400, "only parts of type text are understood")
        texts.append(part["text"])
    return "".join(texts)
