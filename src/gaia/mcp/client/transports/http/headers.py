"""What an MCP message says in its HTTP headers.

The handshake era names the revision and the session; 2026-07-28 also says what the body is about ("Streamable HTTP":
"Request Metadata"), so that whatever stands between client and server can route without reading bodies.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from gaia.mcp.client.protocol.negotiated_protocol import NegotiatedProtocol
from gaia.mcp.client.rpc.channel import Outgoing

__all__ = ["SESSION_ID", "encode_value", "message_headers", "revision_header"]

SESSION_ID = "Mcp-Session-Id"
_REVISION = "MCP-Protocol-Version"

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that says what a request is about."""

_PLAIN = re.compile(r"[\x20-\x7e]*")
_SENTINEL = re.compile(r"=\?base64\?.*\?=", re.DOTALL)


def revision_header(negotiated: NegotiatedProtocol) -> dict[str, str]:
    """Which revision is spoken; nothing before that is agreed."""
    return {} if negotiated.revision is None else {_REVISION: negotiated.revision}


def message_headers(item: Outgoing, negotiated: NegotiatedProtocol, parameters: Mapping[str, str]) -> dict[str, str]:
    """The headers of one POST. `parameters` are those of a tool call that the tool wants to see as headers."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= revision_header(negotiated)
    if is_stateless(negotiated) and item.method is not None:
        headers["Mcp-Method"] = encode_value(item.method)
        about = (item.params or {}).get(_NAMED_BY.get(item.method, ""))
        if isinstance(about, str):
            headers["Mcp-Name"] = encode_value(about)
        headers |= parameters
    return headers


def is_stateless(negotiated: NegotiatedProtocol) -> bool:
    """Whether there are no sessions, and closing a stream cancels its request (2026-07-28)."""
    return not negotiated.server_may_ask


def encode_value(value: Any) -> str:
    """`value` as a header carries it: as it is, or in Base64 between marks if it would not arrive like that."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if _PLAIN.fullmatch(text) and text == text.strip() and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="
