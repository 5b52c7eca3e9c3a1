"""`ToolResult`: the dict that a tool call returns, with typed access to its members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypeAlias, TypedDict, TypeGuard, overload

from gaia.mcp import errors

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


class _Content(TypedDict):
    annotations: NotRequired[dict[str, JsonValue]]
    _meta: NotRequired[dict[str, JsonValue]]


class TextContent(_Content):
    """A text: ``{"type": "text", "text": …}``, and ``annotations`` if the server adds them."""

    type: Literal["text"]
    text: str


class ImageContent(_Content):
    """A picture: ``{"type": "image", "data": …, "mimeType": …}``, with ``data`` in Base64; perhaps ``annotations``."""

    type: Literal["image"]
    data: str
    mimeType: str


class AudioContent(_Content):
    """A recording: ``{"type": "audio", "data": …, "mimeType": …}``; ``data`` is in Base64. Perhaps ``annotations``."""

    type: Literal["audio"]
    data: str
    mimeType: str


class ResourceLink(_Content):
    """The address of a resource, for `MCPClient.read_resource`: ``{"type": "resource_link", "uri": …, "name": …}``."""

    type: Literal["resource_link"]
    uri: str
    name: str
    title: NotRequired[str]
    description: NotRequired[str]
    mimeType: NotRequired[str]
    size: NotRequired[int]


class ResourceContents(TypedDict):
    """The contents of a resource: ``{"uri": …}`` with ``text``, or ``blob`` in Base64, and perhaps ``mimeType``."""

    uri: str
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]
    _meta: NotRequired[dict[str, JsonValue]]


class EmbeddedResource(_Content):
    """A resource with its contents: ``{"type": "resource", "resource": …}``."""

    type: Literal["resource"]
    resource: ResourceContents


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""A block of a result's content. Its ``type`` says which one it is."""

_OF_THE_CLIENT = frozenset(("error_type", "delivery"))


class ToolResult(dict[str, Any]):
    """The result of a tool call. It is a dict: JSON, `==`, `copy` and `pickle` work as with any other.

    There are two kinds of failure. Both have an ``error``, a message for people and models, and `is_error` finds both:

    - The tool reports an error of its own: ``{"content": [...], "isError": True}``. Its ``error`` is the text of the
      content.
    - The call failed, so there is no answer of the tool. Only these results have an ``error_type`` (a word of
      `gaia.mcp.errors`) and a ``delivery`` (``"not_sent"`` or ``"unknown"``: whether the server may have acted). An
      answer with a JSON-RPC error also has its ``code``, and ``data`` if there is any.

    ``content``, a list of blocks, and ``isError``, a bool, are always present. A missing ``content`` is added as an
    empty list, or as a block with the text of the error. `==` ignores added members, so a result still equals the dict
    that the server sent.
    """

    __slots__ = ("_added",)

    def __init__(self, members: Mapping[str, Any] | None = None, /) -> None:
        dict.__init__(self, members or ())
        self._added: tuple[str, ...] = ()
        for name in ("isError", "content", "error"):
            if name not in self and (name != "error" or self["isError"] is True):
                self[name] = self._default_of(name)
                self._added += (name,)

    @classmethod
    def from_server(cls, answer: dict[str, Any]) -> ToolResult:
        """The result for an answer of a server, which cannot claim an ``error_type`` or a ``delivery``."""
        if "error_type" in answer or "delivery" in answer:
            answer = {name: value for name, value in answer.items() if name not in _OF_THE_CLIENT}
        if answer.get("isError") is False and "content" in answer:
            # Every tool call passes here, and the constructor would take twice the time without adding a member.
            result = cls.__new__(cls)
            result.update(answer)
            result._added = ()
            return result
        return cls(answer)

    @classmethod
    def from_error(cls, error: errors.MCPError) -> ToolResult:
        """The result of a call that failed with `error`."""
        members: dict[str, Any] = {"error": error.message, "error_type": error.error_type, "delivery": error.delivery}
        if isinstance(error, errors.JsonRpcError):
            members |= {"code": error.code} if error.data is None else {"code": error.code, "data": error.data}
        return cls(members)

    @property
    def content(self) -> list[ContentBlock]:
        """The blocks of content. Items that are not blocks are left out; a bare string counts as a text block."""
        content: object = self.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return list(filter(_is_block, content)) if isinstance(content, list) else []

    @property
    def text(self) -> str:
        """The text of all text blocks, one per line; empty if there is none. For a failed call, the error."""
        return "\n".join(_as_text(block.get("text", "")) for block in self.content if block["type"] == "text")

    @property
    def structured(self) -> JsonValue:
        """The ``structuredContent``, which the tool's output schema describes; None if there is none."""
        value: JsonValue = self.get("structuredContent")
        return value

    @property
    def is_error(self) -> bool:
        """Whether the call failed, or the tool reports an error."""
        return self.get("isError") is True or "error" in self

    @property
    def error(self) -> str | None:
        """The error message, for both kinds of failure; None if nothing failed."""
        if "error" in self:
            return _as_text(self["error"])
        # The application may have removed the member.
        return self._default_of("error") if self.is_error else None

    def raise_for_error(self) -> Self:
        """Return this result if nothing failed, so that calls can be chained.

        If the call failed, raises the exception of `gaia.mcp.errors` for ``error_type``, with the same ``delivery`` and
        ``code``. If the tool reports an error, raises `ToolFailed`.
        """
        message = self.error
        if message is None:
            return self
        error_type = self.get("error_type")
        if not isinstance(error_type, str):
            raise errors.ToolFailed(message, self)
        if isinstance(code := self.get("code"), int):
            error: errors.MCPError = errors.answered_error(code, message, self.get("data"))
        else:
            error = errors.error_of(error_type, message)
        error.delivery = "not_sent" if self.get("delivery") == "not_sent" else "unknown"
        raise error

    def without_defaults(self) -> dict[str, Any]:
        """A plain dict of the members, without added ones that were not changed."""
        return {name: value for name, value in self.items() if not self._is_as_added(name)}

    def _is_as_added(self, name: str) -> bool:
        # The application may have replaced the value, or changed the list.
        return name in self._added and self[name] == self._default_of(name)

    def _default_of(self, name: str) -> Any:
        if name == "error":
            return self.text or "the tool reported an error without a text"
        has_error = "error" in self and "error" not in self._added
        if name == "isError":
            return has_error
        return [{"type": "text", "text": _as_text(self["error"])}] if has_error else []

    def __eq__(self, other: object) -> bool:
        """Whether the members are the same; added members count only if `other` has them too."""
        if not isinstance(other, dict):
            return NotImplemented
        return {name: self[name] for name in self if name in other or not self._is_as_added(name)} == dict(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def copy(self) -> ToolResult:
        """A shallow copy of the same type."""
        result = ToolResult(self)
        result._added = self._added
        return result

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, name: Literal["content"], /) -> list[ContentBlock]: ...
        @overload
        def __getitem__(self, name: Literal["isError"], /) -> bool: ...
        @overload
        def __getitem__(self, name: Literal["structuredContent"], /) -> JsonValue: ...
        @overload
        def __getitem__(self, name: Literal["error", "error_type"], /) -> str: ...
        @overload
        def __getitem__(self, name: Literal["delivery"], /) -> errors.Delivery: ...
        @overload
        def __getitem__(self, name: str, /) -> Any: ...
        def __getitem__(self, name: str, /) -> Any: ...


def _is_block(block: object) -> TypeGuard[ContentBlock]:
    return isinstance(block, dict) and isinstance(block.get("type"), str)


def _as_text(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "(too deeply nested to show)"
