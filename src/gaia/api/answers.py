"""From a conversation to an agent's answer.

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

__all__ = ["Answer", "BadConversation", "answer", "checked_messages"]

FINISH_REASONS = {"step_limit": "length", "length": "length", "content_filter": "content_filter"}
"""OpenAI's word for a stop reason of ours, where it is not ``stop``."""


class BadConversation(ValueError):
    """The client sent messages that no agent could answer; the text is for the client."""


@dataclass(frozen=True)
class Answer:
    """What an agent answered."""

    text: str
    usage: Usage
    finish_reason: str


def checked_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages, with contents as text; raises `BadConversation`."""
    if not isinstance(messages, list) or not messages:
        raise BadConversation("messages must be a list with at least one message")
    checked = [_message(message) for message in messages]
    if checked[-1]["role"] != "user":
        raise BadConversation("the last message must be the user's")
    return checked


def answer(agent: ApiAgent, messages: list[dict[str, Any]], emit: Callable[[str], None]) -> Answer:
    """Have the agent answer, in this thread. Raises whatever the agent raises."""
    own: Callable[[list[dict[str, Any]], Callable[[str], None]], Any] | None = getattr(agent, "answer_chat", None)
    if own is not None:
        result = own(messages, emit)
    else:
        *history, last = messages
        result = agent.run(last["content"], history=history)
    if isinstance(result, AgentResult):
        return Answer(result.answer, result.usage, FINISH_REASONS.get(result.stop_reason, "stop"))
    return Answer(str(result), Usage(), "stop")


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadConversation("each message must be an object with a role")
    # What newer clients call the system's message.
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role, "content": _text(message.get("content"))}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadConversation("content must be a text, or a list of parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise BadConversation("only parts of type text are understood")
        texts.append(part["text"])
    return "".join(texts)
