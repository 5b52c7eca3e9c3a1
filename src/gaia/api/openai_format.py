"""The JSON documents of OpenAI's chat completions."""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any

import orjson

from gaia.agents.base import ApiAgent
from gaia.agents.base.agent_result import Usage
from gaia.api.answers import Answer, RequestFailed


class Reply:
    """The documents of one answer, whole or in chunks: they share an id and a time."""

    def __init__(self, model_id: str) -> None:
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model_id}

    def whole(self, answer: Answer) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}
        usage = dataclasses.asdict(answer.usage)
        return {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return self._event([{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}])

    def usage(self, usage: Usage) -> bytes:
        return self._event([], usage=dataclasses.asdict(usage))

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return event({**self._common, "object": "chat.completion.chunk", "choices": choices, **more})


def event(document: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(document) + b"\n\n"


def model(agent: ApiAgent) -> dict[str, Any]:
    return {**agent.get_model_info(), "id": agent.get_model_id(), "object": "model", "created": 0, "owned_by": "gaia"}


def error(failed: RequestFailed) -> dict[str, Any]:
    return {"error": {"message": failed.message, "type": failed.kind, "param": None, "code": failed.code}}
