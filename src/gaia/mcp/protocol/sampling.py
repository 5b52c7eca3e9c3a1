"""Sampling: a server asks the client's model (specification, "Sampling")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal, optional, required

REJECTED = -1
"""The error that says that the user rejected a sampling request."""


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a server wants of a model. Show it to a person before it is sent: the server wrote every word of it.

    Names in brackets are the specification's. Everything but `messages` and `max_tokens` may be missing.
    """

    server: str
    """Which server asks; the name that it has here."""
    messages: list[dict[str, Any]]
    """``{"role": "user" or "assistant", "content": …}``, content being one block or a list of blocks."""
    max_tokens: int
    """The answer must not be longer (``maxTokens``)."""
    system_prompt: str | None = None
    """(``systemPrompt``)"""
    model_preferences: dict[str, Any] = {}
    """``{"hints": [{"name": …}], "costPriority": …, …}``; hints count in order (``modelPreferences``)."""
    temperature: float | None = None
    """As the server wants it; None leaves it to the application."""
    stop_sequences: list[str] = []
    """(``stopSequences``)"""
    include_context: str | None = None
    """Deprecated: "none", "thisServer" or "allServers" (``includeContext``)."""
    metadata: dict[str, Any] = {}
    """For the model's provider."""
    tools: list[dict[str, Any]] = []
    """What the model may call; only where the client offers that."""
    tool_choice: dict[str, Any] | None = None
    """(``toolChoice``)"""

    def answer(self, text: str, *, model: str, stop_reason: str = "endTurn") -> dict[str, Any]:
        """The result for a plain text of `model`."""
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": model, "stopReason": stop_reason}

    @classmethod
    def from_params(cls, server: str, params: Mapping[str, Any], *, tools: bool) -> SamplingRequest:
        """Read the params of a ``sampling/createMessage``; `tools` says whether the client offers them.

        Raises `Refusal`.
        """
        if not tools and (params.get("tools") is not None or params.get("toolChoice") is not None):
            raise Refusal(INVALID_PARAMS, "tools: the client does not offer sampling with tools")
        messages = required(params, "messages", list)
        _check_tool_results(messages)
        temperature = params.get("temperature")
        if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, (int, float))):
            raise Refusal(INVALID_PARAMS, "temperature: of the wrong type")
        return cls(
            server=server,
            messages=messages,
            max_tokens=required(params, "maxTokens", int),
            system_prompt=optional(params, "systemPrompt", str),
            model_preferences=optional(params, "modelPreferences", dict) or {},
            temperature=temperature,
            stop_sequences=optional(params, "stopSequences", list) or [],
            include_context=optional(params, "includeContext", str),
            metadata=optional(params, "metadata", dict) or {},
            tools=optional(params, "tools", list) or [],
            tool_choice=optional(params, "toolChoice", dict),
        )


def sampling_result(answer: object) -> dict[str, Any]:
    """What the server is told. `answer` is what user code returned; None is a rejection, and a `Refusal`.

    Raises TypeError for what is no ``CreateMessageResult``.
    """
    if answer is None:
        raise Refusal(REJECTED, "User rejected sampling request")
    if not isinstance(answer, Mapping):
        raise TypeError(f"sampling is answered with a dict or None, not {type(answer)!r}")
    for key, kinds in (("role", str), ("model", str), ("content", (dict, list))):
        if not isinstance(answer.get(key), kinds):
            raise TypeError(f"the answer to sampling has no {key!r}, or a wrong one; see SamplingRequest.answer")
    return dict(answer)


def _check_tool_results(messages: list[Any]) -> None:
    """Every use of a tool is followed by its result, and a message with results has nothing else in it."""
    open_uses: set[Any] = set()
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise Refusal(INVALID_PARAMS, "messages: each needs a role, user or assistant")
        blocks = _blocks(message.get("content"))
        results = {_text(block.get("toolUseId")) for block in blocks if block.get("type") == "tool_result"}
        if results and len(results) != len(blocks):
            raise Refusal(INVALID_PARAMS, "messages: tool results are mixed with other content")
        if results != open_uses:
            raise Refusal(INVALID_PARAMS, "messages: the results are not those of the tools used right before")
        open_uses = {_text(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if open_uses:
        raise Refusal(INVALID_PARAMS, "messages: a tool use has no result")


def _blocks(content: Any) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else [content]
    if not all(isinstance(block, dict) for block in blocks):
        raise Refusal(INVALID_PARAMS, "messages: content must be a block or a list of blocks")
    return blocks


def _text(identifier: Any) -> str:
    if not isinstance(identifier, str):
        raise Refusal(INVALID_PARAMS, "messages: a tool use or result without an id")
    return identifier
