"""Questions of servers to a client (specification, "Roots", "Sampling", "Elicitation").

A server asks for the folders to work in (roots), asks the client's model (sampling), or asks the person who uses the
client (elicitation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from gaia.mcp.errors import web_page
from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable
from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal

T = TypeVar("T")

Root = str | Path | dict[str, Any]
"""A folder or file: a path, a ``file://`` URI, or ``{"uri": …, "name": …}`` to give it a name for people."""


def root_list(roots: Iterable[Root]) -> dict[str, Any]:
    """The answer to ``roots/list``. Raises ValueError for an invalid root: all URIs have to be ``file://``."""
    return {"roots": [_root(root) for root in roots]}


def _root(root: Root) -> dict[str, Any]:
    if isinstance(root, dict):
        uri, name = root.get("uri"), root.get("name")
        if not isinstance(uri, str) or not isinstance(name, str | None):
            raise ValueError(  # noqa: TRY004 - a bad value among many
                f'roots: expected {{"uri": "file://…", "name": "…"}}, got {root!r}'
            )
        return {"uri": _file_uri(uri)} if name is None else {"uri": _file_uri(uri), "name": name}
    if isinstance(root, str) and "://" in root:
        return {"uri": _file_uri(root)}
    if not isinstance(root, str | Path):
        raise ValueError(f"roots: expected a path or a file:// URI, got {root!r}")  # noqa: TRY004 - as above
    path = Path(root).expanduser().absolute()
    return {"uri": path.as_uri(), "name": path.name} if path.name else {"uri": path.as_uri()}


def _file_uri(uri: str) -> str:
    if not uri.startswith("file://"):
        raise ValueError(f"roots: {uri!r} is no file:// URI")
    return uri


def _read(kind: type[T], server: str, params: Mapping[str, Any]) -> T:
    """Raises `Refusal` for params that are missing or of another type; null counts as missing."""
    given = {key: value for key, value in params.items() if value is not None}
    try:
        return msgspec.convert({**given, "server": server}, kind)
    except msgspec.ValidationError as error:
        raise Refusal(INVALID_PARAMS, str(error)) from None


REJECTED = -1
"""The error code for a sampling request that the user rejected."""


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A server's request to a model. Show it to a person before you send it: the server wrote every word of it.

    Names in brackets are the specification's. All fields except `messages` and `max_tokens` may be missing.
    """

    server: str
    """This program's name for the server that asks."""
    messages: list[dict[str, Any]]
    """``{"role": "user" or "assistant", "content": …}``; the content is one block or a list of blocks."""
    max_tokens: int
    """The answer must not be longer (``maxTokens``)."""
    system_prompt: str | None = None
    """(``systemPrompt``)"""
    model_preferences: dict[str, Any] = {}
    """``{"hints": [{"name": …}], "costPriority": …, …}``; the first hint counts most (``modelPreferences``)."""
    temperature: float | None = None
    """The server's wish; None leaves it to the application."""
    stop_sequences: list[str] = []
    """(``stopSequences``)"""
    include_context: str | None = None
    """Deprecated: "none", "thisServer" or "allServers" (``includeContext``)."""
    metadata: dict[str, Any] = {}
    """For the model's provider."""
    tools: list[dict[str, Any]] = []
    """Tools that the model may call, if the client offers sampling with tools."""
    tool_choice: dict[str, Any] | None = None
    """(``toolChoice``)"""

    def answer(self, text: str, *, model: str, stop_reason: str = "endTurn") -> dict[str, Any]:
        """The result for a plain text of `model`."""
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": model, "stopReason": stop_reason}


def sampling_request(server: str, params: Mapping[str, Any], *, tools: bool) -> SamplingRequest:
    """Read the params of a ``sampling/createMessage``; `tools`: the client offers them. Raises `Refusal`."""
    if not tools and (params.get("tools") is not None or params.get("toolChoice") is not None):
        raise Refusal(INVALID_PARAMS, "tools: the client does not offer sampling with tools")
    request = _read(SamplingRequest, server, params)
    _check_tool_results(request.messages)
    return request


def sampling_result(answer: object) -> dict[str, Any]:
    """The result for the server of user code's `answer`. Raises `Refusal` for None (rejected), or TypeError."""
    if answer is None:
        raise Refusal(REJECTED, "User rejected sampling request")
    if not isinstance(answer, Mapping):
        raise TypeError(f"sampling is answered with a dict or None, not {type(answer)!r}")
    for key, kinds in (("role", str), ("model", str), ("content", (dict, list))):
        if not isinstance(answer.get(key), kinds):
            raise TypeError(f"the answer to sampling has no {key!r}, or a wrong one; see SamplingRequest.answer")
    return dict(answer)


def _check_tool_results(messages: list[Any]) -> None:
    """Raise `Refusal` unless a result follows every use of a tool, and messages with results hold nothing else."""
    open_uses: set[Any] = set()
    for message in messages:
        if message.get("role") not in ("user", "assistant"):
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


ElicitationMode = Literal["form", "url"]


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """A person's answer to an elicitation. `ElicitationRequest` has a method for each of the three actions."""

    action: Literal["accept", "decline", "cancel"]
    """Accepted, declined, or closed without a decision."""
    content: dict[str, Any] | None = None
    """The fields of an accepted form; None for a URL."""


class ElicitationRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A server's question to a person.

    Say which server asks, and offer the choice to decline. In mode "url" show the whole URL, and open it only with the
    person's consent, in a browser that neither this program nor a model can look into. This package never fetches it.
    """

    server: str
    """This program's name for the server that asks, not the server's own."""
    message: str
    """For the person. The server wrote it: make it safe before it is shown on a terminal."""
    mode: ElicitationMode = "form"
    """``form``, or ``url`` for an action of the person on a web page."""
    requested_schema: dict[str, Any] = {}
    """The JSON Schema of the form: an object with plain fields."""
    url: str | None = None
    """In mode "url", the page for the person, with its host in ASCII: https, or http on this machine."""
    elicitation_id: str | None = None
    """In mode "url", the id of the later `ElicitationCompleted` event."""

    def accept(self, content: Mapping[str, Any] | None = None) -> ElicitationAnswer:
        """The person agreed. Fields that `content` leaves out get the defaults of the schema.

        Raises ValueError, naming the fields, for content that the schema does not allow; the person can be asked again.
        """
        if self.mode == "url":
            if content:
                raise ValueError("a question with a URL is accepted without content: the answer is given there")
            return ElicitationAnswer("accept")
        complete = {**_defaults(self.requested_schema), **(content or {})}
        try:
            problems = JsonSchema(self.requested_schema).problems(complete)
        except SchemaUnusable:
            # The server checks the answer anyway, so a form that cannot be checked here can still be answered.
            problems = []
        if problems:
            raise ValueError(f"the answer does not fit the form of server {self.server!r}: {'; '.join(problems)}")
        return ElicitationAnswer("accept", complete)

    def decline(self) -> ElicitationAnswer:
        """The person does not want to answer."""
        return ElicitationAnswer("decline")

    def cancel(self) -> ElicitationAnswer:
        """The person made no choice, for example by closing the window."""
        return ElicitationAnswer("cancel")


def elicitation_request(
    server: str, params: Mapping[str, Any], modes: tuple[ElicitationMode, ...]
) -> ElicitationRequest:
    """Read the params of an ``elicitation/create``. Raises `Refusal`, also for a mode that is not offered."""
    mode = params.get("mode") or "form"
    if mode not in modes:
        raise Refusal(INVALID_PARAMS, f"mode: the client offers {' and '.join(modes)}, not {str(mode)[:20]!r}")
    # Members of the other mode have no meaning.
    members = ("message", "url", "elicitationId") if mode == "url" else ("message", "requestedSchema")
    request = _read(ElicitationRequest, server, {"mode": mode, **{key: params.get(key) for key in members}})
    if mode == "url":
        if (page := web_page(request.url or "")) is None:
            raise Refusal(INVALID_PARAMS, "url: only https is shown to users, and http on this machine")
        return msgspec.structs.replace(request, url=page)
    if params.get("requestedSchema") is None:
        raise Refusal(INVALID_PARAMS, "requestedSchema: missing")
    try:
        JsonSchema(request.requested_schema)
    except SchemaUnusable as error:
        raise Refusal(INVALID_PARAMS, f"requestedSchema: it is no valid schema: {error}") from None
    return request


def elicitation_id(method: str, params: Mapping[str, Any]) -> str | None:
    """The id in the server's later report that a person is done at a URL; None for every other request."""
    match method, params:
        case "elicitation/create", {"mode": "url", "elicitationId": str(identifier)}:
            return identifier
    return None


def elicitation_result(request: ElicitationRequest, answer: object) -> dict[str, Any]:
    """The result for user code's `answer`: an ElicitationAnswer, a dict or None. Raises ValueError or TypeError."""
    if answer is None:
        answer = request.cancel()
    elif isinstance(answer, Mapping):
        answer = msgspec.convert(dict(answer), ElicitationAnswer)
    if not isinstance(answer, ElicitationAnswer):
        raise TypeError(f"an elicitation is answered with an ElicitationAnswer, a dict or None, not {type(answer)!r}")
    if answer.action != "accept":
        return {"action": answer.action}
    content = request.accept(answer.content).content
    return {"action": "accept"} if content is None else {"action": "accept", "content": content}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return {
        name: field["default"]
        for name, field in (properties if isinstance(properties, dict) else {}).items()
        if isinstance(field, dict) and "default" in field
    }
