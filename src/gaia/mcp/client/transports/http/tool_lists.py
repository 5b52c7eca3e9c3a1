"""Listings of tools: what is learnt from one that passes by, and one that is made for that alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import orjson

from gaia.mcp.client.protocol.messages import encode_request
from gaia.mcp.client.protocol.negotiated_protocol import NegotiatedProtocol
from gaia.mcp.client.rpc.channel import Frame
from gaia.mcp.client.transports.http.headers import message_headers
from gaia.mcp.client.transports.http.http_connection import HttpConnection
from gaia.mcp.client.transports.http.tool_headers import ToolHeaders

__all__ = ["relist", "without_unusable_tools"]

_METHOD = "tools/list"
_MAX_PAGES = 1000
_ID = "tool-headers"
"""The ids of calls are numbers."""


def without_unusable_tools(message: bytes, headers: ToolHeaders) -> bytes:
    """`message`, without the tools that cannot be called if it is the answer to `tools/list`."""
    try:
        answer = orjson.loads(message)
    except orjson.JSONDecodeError:
        return message
    tools = _member(_member(answer, "result"), "tools")
    if not isinstance(tools, list):
        return message
    offered = headers.learn(tools)
    if len(offered) == len(tools):
        return message
    answer["result"]["tools"] = offered
    return orjson.dumps(answer)


def relist(
    http_connection: HttpConnection,
    url: httpx2.URL,
    negotiated: NegotiatedProtocol,
    headers: ToolHeaders,
    check: Callable[[], None],
) -> None:
    """Have `headers` learn from a new listing. Raises `httpx2.HTTPError`; `check` may raise before anything is sent."""
    cursor: Any = None
    for _ in range(_MAX_PAGES):
        params = negotiated.add_meta({} if cursor is None else {"cursor": cursor}, None)
        item = Frame(encode_request(_ID, _METHOD, params), _METHOD, params)
        with http_connection.request(
            "POST", url, message_headers(item, negotiated, {}), item.frame, on_sending=check
        ) as response:
            result = next((_member(message, "result") for message in _messages(response)), None)
        tools = _member(result, "tools")
        if not isinstance(tools, list):
            return
        headers.learn(tools)
        cursor = _member(result, "nextCursor")
        if cursor is None:
            return


def _messages(response: httpx2.Response) -> Iterator[Any]:
    """Those with our id."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        bodies: Iterator[str | bytes] = (event.data for event in httpx2.EventSource(response) if event.data)
    else:
        bodies = iter([response.read()])
    for body in bodies:
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError:
            continue
        if _member(message, "id") == _ID:
            yield message


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
