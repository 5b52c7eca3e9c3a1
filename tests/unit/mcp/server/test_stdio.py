"""Lines in and lines out; servers with descriptors, signals and a process of their own are in `tests/serving`."""

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from gaia.mcp.server import stdio

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'

Item = SessionMessage | Exception


def read(data: bytes, max_line: int = 10_000) -> list[Item]:
    """What the server makes of an input."""

    async def session() -> list[Item]:
        incoming, client = os.pipe()
        sender, receiver = anyio.create_memory_object_stream[Item](0)
        loop = asyncio.get_running_loop()
        with os.fdopen(client, "wb", buffering=0) as stream:
            stream.write(data)
        async with receiver:
            reading = asyncio.create_task(asyncio.to_thread(stdio._read_lines, incoming, max_line, loop, sender))
            items = [item async for item in receiver]
        await reading
        return items

    return asyncio.run(session())


def write(messages: int, descriptor: int) -> bool:
    """Have the server write this many messages; whether the client took them all."""

    async def session() -> bool:
        sender, receiver = anyio.create_memory_object_stream[SessionMessage](messages)
        async with sender:
            for number in range(messages):
                message = types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": "ä\n"})
                await sender.send(SessionMessage(message))
        return await stdio._write_lines(descriptor, receiver)

    return asyncio.run(session())


def methods(items: list[Item]) -> list[Any]:
    return [item.message.method if isinstance(item, SessionMessage) else type(item).__name__ for item in items]  # type: ignore[union-attr]


class TestReading:
    def test_each_line_is_a_message_and_empty_ones_are_none(self) -> None:
        assert methods(read(PING + b"\r\n\n  \n" + PING + b"\n")) == ["ping", "ping"]

    def test_the_last_line_needs_no_end(self) -> None:
        assert methods(read(PING)) == ["ping"]

    @pytest.mark.parametrize(
        "junk", [b"{broken", b"[]", b"7", b'{"jsonrpc": "1.0"}', b"\xff\xfe", b"[" * 5000], ids=range(6)
    )
    def test_what_is_no_message_is_handed_on_as_an_error_and_reading_goes_on(self, junk: bytes) -> None:
        assert methods(read(junk + b"\n" + PING + b"\n")) == ["ValidationError", "ping"]

    def test_a_line_over_the_limit_ends_the_reading_and_one_of_the_limit_does_not(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        limit = len(PING) + 1
        assert methods(read(PING + b"\n" + b" " + PING + b"\n" + PING + b"\n", limit)) == ["ping"]
        assert "line_too_long" in caplog.text


class TestWriting:
    def test_each_message_is_one_line_also_in_small_writes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[bytes] = []

        def write_little(_descriptor: int, data: memoryview) -> int:
            written.append(bytes(data[:7]))
            return len(written[-1])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", Selective(write_little, descriptor=-7))
            assert write(2, -7)
        lines = b"".join(written).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"jsonrpc": "2.0", "id": number, "result": {"text": "ä\n"}} for number in range(2)
        ]

    def test_a_client_that_does_not_read_any_more_ends_the_writing(self) -> None:
        client, outgoing = os.pipe()
        os.close(client)
        try:
            assert write(2, outgoing) is False
        finally:
            os.close(outgoing)


class Selective:
    """`os.write` for one descriptor only: the event loop writes too."""

    def __init__(self, write: Callable[[int, Any], int], descriptor: int) -> None:
        self._write, self._descriptor, self._real = write, descriptor, os.write

    def __call__(self, descriptor: int, data: Any) -> int:
        return (self._write if descriptor == self._descriptor else self._real)(descriptor, data)
