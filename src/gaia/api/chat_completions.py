"""OpenAI's chat completions: the body of a request, the agent's answer, and the documents of the answer.

An agent answers with `Agent.run`. An agent that answers in its own way, or piece by piece, defines
``answer_chat(self, messages, emit)``: `messages` are as the client sent them, ``emit(text)`` sends a piece of the
answer to a client that streams, and the return value is the whole answer, as a text or as an `AgentResult`.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import orjson

from gaia.agents.base import ApiAgent
from gaia.agents.base.agent_result import AgentResult, Usage

_FINISH_REASONS = {"step_limit": "length", "length": "length", "content_filter": "content_filter"}
"""OpenAI's finish reasons by the stop reasons of a run. Any other stop reason means ``stop``."""

_NOT_SUPPORTED = ("tools", "functions", "audio")
"""Parameters that would change the meaning of the answer. Others, such as the temperature, are ignored."""

Object = dict[str, Any]
Number = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@dataclass(eq=False)
class RequestFailed(Exception):
    """Ends a request with an error in OpenAI's form. The client receives the message."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None

    def document(self) -> Object:
        return {"error": {"message": self.message, "type": self.kind, "param": None, "code": self.code}}


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Object] | None = None
    function_call: Object | None = None
    refusal: str | None = None
    audio: Object | None = None


class ChatRequest(msgspec.Struct, kw_only=True):
    """The fields of OpenAI's reference. Unknown fields are ignored."""

    model: str | None = None
    messages: list[Object]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None

    # Fields that the agent decides itself.
    tools: list[Object] | None = None
    functions: list[Object] | None = None
    audio: Object | None = None

    # Ignored fields.
    tool_choice: str | Object | None = None
    function_call: str | Object | None = None
    parallel_tool_calls: bool | None = None
    frequency_penalty: Number | None = None
    presence_penalty: Number | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    logit_bias: dict[str, Number] | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: Object | None = None
    prediction: Object | None = None
    web_search_options: Object | None = None
    modalities: list[str] | None = None
    metadata: dict[str, str] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


_decoder = msgspec.json.Decoder(ChatRequest)


def parse(body: bytes) -> ChatRequest:
    """The request in a body. Raises `RequestFailed` with the name of a wrong field."""
    try:
        request = _decoder.decode(body)
        for message in request.messages:
            # Messages are passed on unchanged, with unknown fields.
            msgspec.convert(message, Message)
    except msgspec.ValidationError as error:
        raise RequestFailed(400, str(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RequestFailed(400, "The body is not JSON") from None
    if given := [name for name in _NOT_SUPPORTED if getattr(request, name)]:
        raise RequestFailed(
            400, f"{given[0]} cannot be given: an agent uses its own tools", code="unsupported_parameter"
        )
    if request.n not in (None, 1):
        raise RequestFailed(400, "n must be 1", code="unsupported_parameter")
    return request


def checked_messages(messages: list[Object]) -> list[Object]:
    """The messages of a parsed request, with contents as text. Raises `RequestFailed`."""
    checked = [
        # Newer clients call the system's message "developer".
        {
            **message,
            "role": "system" if message["role"] == "developer" else message["role"],
            "content": _text(message.get("content")),
        }
        for message in messages
    ]
    if not checked:
        raise RequestFailed(400, "messages must be a list with at least one message")
    if checked[-1]["role"] != "user":
        raise RequestFailed(400, "the last message must be the user's")
    return checked


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


class Answer(NamedTuple):
    text: str
    usage: Usage
    finish_reason: str


def answer(agent: ApiAgent, messages: list[Object], emit: Callable[[str], None]) -> Answer:
    own: Callable[[list[Object], Callable[[str], None]], Any] | None = getattr(agent, "answer_chat", None)
    if own is not None:
        result = own(messages, emit)
    else:
        *history, last = messages
        result = agent.run(last["content"], history=history)
    if isinstance(result, AgentResult):
        return Answer(result.answer, result.usage, _FINISH_REASONS.get(result.stop_reason, "stop"))
    return Answer(str(result), Usage(), "stop")


class Reply:
    def __init__(self, model_id: str) -> None:
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model_id}

    def whole(self, answer: Answer) -> Object:
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}
        usage = dataclasses.asdict(answer.usage)
        return {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(self, delta: Object, finish_reason: str | None = None) -> bytes:
        return self._event([{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}])

    def usage(self, usage: Usage) -> bytes:
        return self._event([], usage=dataclasses.asdict(usage))

    def _event(self, choices: list[Object], **more: Any) -> bytes:
        return event({**self._common, "object": "chat.completion.chunk", "choices": choices, **more})


def event(document: Object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def model_document(agent: ApiAgent) -> Object:
    return {**agent.get_model_info(), "id": agent.get_model_id(), "object": "model", "created": 0, "owned_by": "gaia"}
