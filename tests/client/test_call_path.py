"""How many Python frames a tool call passes on its way from the manager to the server's stdin."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from tests.servers.answers import text
from tests.tracing import Tracing

MAX_FRAMES = 8
"""The reader of the code follows a call in this many steps."""

MAX_AWAITED_FRAMES = 10


@pytest.fixture
def manager(fault_server: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[MCPClientManager]:
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        manager.add_server("fault", fault_server())
        manager.call_tool("mcp_fault_echo", {"text": "the first call"})
        yield manager


def frames_to_the_pipe(monkeypatch: pytest.MonkeyPatch, call: Callable[[], dict[str, Any]]) -> list[str]:
    """The functions on the stack of this thread when it writes, without those of the test; outermost first."""
    here, found = sys._getframe(), []
    thread, write = threading.get_ident(), os.write

    def spied(descriptor: int, data: bytes) -> int:
        if threading.get_ident() == thread and b'"tools/call"' in bytes(data):
            frame: FrameType | None = sys._getframe().f_back
            while frame is not None and frame is not here:
                found.append(frame.f_code.co_qualname)
                frame = frame.f_back
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", spied)
    assert text(call()) == "hi"
    found.pop()  # the lambda of the test
    return found[::-1]


@pytest.mark.parametrize("observed", [False, True])
def test_a_call_passes_few_frames(manager: MCPClientManager, monkeypatch: pytest.MonkeyPatch, observed: bool) -> None:
    tracing = Tracing.installed(monkeypatch) if observed else None
    frames = frames_to_the_pipe(monkeypatch, lambda: manager.call_tool("mcp_fault_echo", {"text": "hi"}))
    assert frames[0] == "MCPClientManager.call_tool"
    assert frames[-1].startswith("PipeWriter.")
    assert len(frames) <= MAX_FRAMES, frames
    assert tracing is None or tracing.call.name == "tools/call echo"


def test_a_call_of_a_client_passes_as_many(manager: MCPClientManager, monkeypatch: pytest.MonkeyPatch) -> None:
    client = manager.get_client("fault")
    assert client is not None
    frames = frames_to_the_pipe(monkeypatch, lambda: client.call_tool("echo", {"text": "hi"}))
    assert frames[0] == "MCPClient.call_tool"
    assert len(frames) <= MAX_FRAMES, frames


def test_an_awaited_call_passes_few_more(manager: MCPClientManager, monkeypatch: pytest.MonkeyPatch) -> None:
    awaited = AsyncMCPClientManager.over(manager)
    frames = frames_to_the_pipe(monkeypatch, lambda: asyncio.run(awaited.call_tool("mcp_fault_echo", {"text": "hi"})))
    ours = frames[frames.index("AsyncMCPClientManager.call_tool") :]
    assert ours[-1].startswith("PipeWriter.")
    assert len(ours) <= MAX_AWAITED_FRAMES, ours


def test_docs_name_the_frames(manager: MCPClientManager, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "architecture.md").read_text()
    frames = frames_to_the_pipe(monkeypatch, lambda: manager.call_tool("mcp_fault_echo", {"text": "hi"}))
    listed = [line for line in page.splitlines() if line[:1].isdigit() and "`" in line]
    assert [line.split("`")[1] for line in listed if line.split("`")[1] in frames] == frames
