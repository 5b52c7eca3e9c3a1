"""How many Python frames a call passes in the gateway, from the client's request to the server's stdin."""

import json
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from tests.gateway.lines import STATELESS
from tests.unit.serving.test_http_protocol import served

MAX_FRAMES = 14
"""The reader of the code follows a call in this many steps, of whichever kind its client is."""


def frames_to_the_pipe(monkeypatch: pytest.MonkeyPatch, outermost: str) -> list[list[str]]:
    """Of each tool call, the functions on the stack when it is written, from `outermost` down."""
    found: list[list[str]] = []
    write = os.write

    def spied(descriptor: int, data: bytes) -> int:
        if b'"tools/call"' in bytes(data):
            names: list[str] = []
            frame: FrameType | None = sys._getframe(1)
            while frame is not None:
                names.append(frame.f_code.co_qualname)
                if names[-1] == outermost:
                    found.append(names[::-1])
                    break
                frame = frame.f_back
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", spied)
    return found


async def test_a_call_over_http(monkeypatch: pytest.MonkeyPatch, fault_server: Callable[..., dict[str, Any]]) -> None:
    body = {"name": "fault_echo", "arguments": {"text": "hi"}, "_meta": STATELESS}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}).encode()
    named = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: fault_echo")

    gateway = Gateway({"fault": fault_server()})
    async with gateway, served(gateway.endpoint) as connect:
        client: Any = await connect()
        client.post("/mcp", call, *named)
        assert (await client.answer())[0] == 200
        frames = frames_to_the_pipe(monkeypatch, "HttpProtocol.on_message_complete")
        client.post("/mcp", call, *named)
        assert (await client.answer())[0] == 200
        (path,) = frames

        assert len(path) <= MAX_FRAMES, path
