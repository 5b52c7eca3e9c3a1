"""The body of a request for a chat completion: every field has its type, or the request is refused before any work."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from gaia.api.answers import RequestFailed

Object = dict[str, Any]
Number = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

NOT_SUPPORTED = ("tools", "functions", "audio")
"""Parameters that would change what the answer means. Others, such as the temperature, are ignored."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Message(msgspec.Struct):
    """What is checked of a message; its content is checked where it is read, see `answers.checked_messages`."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Object] | None = None
    function_call: Object | None = None
    refusal: str | None = None
    audio: Object | None = None


class ChatRequest(msgspec.Struct, kw_only=True):
    """The fields of OpenAI's reference; unknown ones are ignored."""

    model: str | None = None
    messages: list[Object]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None

    # What an agent decides by itself.
    tools: list[Object] | None = None
    functions: list[Object] | None = None
    audio: Object | None = None

    # What is ignored.
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
    """Raises `RequestFailed`, saying which field is wrong."""
    try:
        request = _decoder.decode(body)
        for message in request.messages:
            # They are passed on as they came, with fields that are not known here.
            msgspec.convert(message, Message)
    except msgspec.ValidationError as error:
        raise RequestFailed(400, str(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise RequestFailed(400, "The body is not JSON") from None
    if given := [name for name in NOT_SUPPORTED if getattr(request, name)]:
        raise RequestFailed(
            400, f"{given[0]} cannot be given: an agent uses its own tools", code="unsupported_parameter"
        )
    if request.n not in (None, 1):
        raise RequestFailed(400, "n must be 1", code="unsupported_parameter")
    return request
