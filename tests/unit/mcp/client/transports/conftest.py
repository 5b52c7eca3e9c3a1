"""Transports to scripted servers, and processes that lead a group of their own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client.protocol.framing import OversizedLine
from gaia.mcp.client.protocol.messages import encode_request
from gaia.mcp.client.rpc.channel import Frame
from gaia.mcp.client.transports import StdioTransport
from gaia.mcp.client.transports.stdio_channel import StdioChannel

Json = dict[str, Any]
Configure = Callable[..., Json]
MEGABYTE = 1024 * 1024
PATIENCE = 20.0
SECRET = "hunter2-hunter2"

posix = pytest.mark.skipif(os.name == "nt", reason="about process groups and signals")


def call(transport: StdioTransport, tool: str, **arguments: Any) -> Any:
    """The text that a tool of the fault server returns; decoded where it is JSON."""
    response = transport.send_request("tools/call", {"name": tool, "arguments": arguments})
    text = response["result"]["content"][0]["text"]
    return text if tool == "echo" else json.loads(text)


class Listener:
    """What a channel tells, kept."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[bytes | OversizedLine] = queue.SimpleQueue()
        self.ended = threading.Event()

    def message_received(self, line: bytes | OversizedLine) -> None:
        self.lines.put(line)

    def channel_ended(self) -> None:
        self.ended.set()


def wait_until_serving(channel: StdioChannel, listener: Listener) -> None:
    """Return when the server answers, and its signal handlers are in place."""
    channel.send(Frame(encode_request(1, "ping", None)))
    listener.lines.get(timeout=PATIENCE)


@pytest.fixture
def start(fault_server: Configure) -> Iterator[Callable[..., StdioTransport]]:
    """Connect to a scripted server; `transport` are keywords for StdioTransport, all others make the scenario."""
    transports = []

    def start(transport: Json | None = None, **scenario: Any) -> StdioTransport:
        started = StdioTransport(**fault_server(**scenario), **(transport or {}))
        transports.append(started)
        assert started.connect()
        return started

    yield start
    for transport in transports:
        transport.disconnect()


@pytest.fixture
def open_channel(fault_server: Configure) -> Iterator[Callable[..., tuple[StdioChannel, Listener]]]:
    """Open a channel to a scripted server that is ready; the test closes it, or the fixture does."""
    channels = []

    def open_channel(**scenario: Any) -> tuple[StdioChannel, Listener]:
        listener = Listener()
        channel = StdioTransport(**fault_server(**scenario)).open(listener, "test")
        channels.append(channel)
        wait_until_serving(channel, listener)
        return channel, listener

    yield open_channel
    for channel in channels:
        channel.close(0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers get little time to leave."""
    monkeypatch.setattr("gaia.mcp.client.transports.standalone._DEFAULT_GRACE", 0.1)
    monkeypatch.setattr("gaia.mcp.client.transports.process._TERMINATE_SECONDS", 0.1)


@pytest.fixture
def sleeper(starts_processes: None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of its own, like a server."""
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
    process = subprocess.Popen(command, start_new_session=True)
    yield process
    process.kill()
    process.wait()
