"""The bounded buffer that pages follow, and their streams, without HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gaia.dashboard import live_updates
from gaia.dashboard.live_updates import UpdateBuffer, UpdateStream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "POLL_SECONDS", 0.001)


def make(buffer: UpdateBuffer, *running: list[dict[str, Any]]) -> UpdateStream:
    """A stream of one server; `running` is what it finds under way at one look after the other, then nothing."""
    servers = [{"name": "it"}]
    looks = iter(running)
    sources = {"gateway": lambda: None, "servers": lambda: servers, "running": lambda: next(looks, [])}
    return UpdateStream(buffer, sources)


async def following(chunks: AsyncIterator[bytes]) -> list[tuple[str, Any]]:
    """The events in the next chunk."""
    blocks = (await anext(chunks)).decode().strip().split("\n\n")
    pairs = [block.split("\n", 1) for block in blocks]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in pairs]


async def test_changes_follow_the_snapshot() -> None:
    buffer = UpdateBuffer()

    chunks = make(buffer, [], [], [{"tool": "sleep"}], [{"tool": "sleep"}], []).events()
    assert [kind for kind, _ in await following(chunks)] == ["snapshot"]
    buffer.write("call", {"tool": "echo\nline"})
    assert await following(chunks) == [("call", {"tool": "echo\nline"})]
    assert await following(chunks) == [("running", [{"tool": "sleep"}])]
    assert await following(chunks) == [("running", [])]


async def test_one_that_fell_behind_starts_afresh() -> None:
    buffer = UpdateBuffer(limit=2)

    chunks = make(buffer).events()
    await following(chunks)
    for number in range(5):
        buffer.write("call", {"n": number})
    assert [kind for kind, _ in await following(chunks)] == ["snapshot"]
    buffer.write("call", {"n": 6})
    assert await following(chunks) == [("call", {"n": 6})]


async def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "_KEEP_ALIVE_SECONDS", 0.01)

    chunks = make(UpdateBuffer()).events()
    await following(chunks)
    assert (await anext(chunks)).startswith(b":")


async def test_readers_are_counted_until_they_leave() -> None:
    watched = make(UpdateBuffer())
    chunks = watched.events()
    await following(chunks)
    assert watched.readers == 1
    watched.close()
    assert [chunk async for chunk in chunks] == []
    assert watched.readers == 0


def test_a_reader_gets_what_was_written_since() -> None:
    buffer = UpdateBuffer()
    buffer.write("call", {"n": 1})
    position = buffer.position
    buffer.write("call", {"n": 2})
    buffer.write("event", {"n": 3})
    found = buffer.read(position)

    assert found is not None
    entries, position = found
    assert [(kind, data["n"]) for kind, data in entries] == [("call", 2), ("event", 3)]
    assert buffer.read(position) == ([], 3)


def test_one_that_fell_behind_is_told_so() -> None:
    buffer = UpdateBuffer(limit=2)
    position = buffer.position
    buffer.write("call", {"n": 1})
    buffer.write("call", {"n": 2})
    assert buffer.read(position) is not None

    buffer.write("call", {"n": 3})
    assert buffer.read(position) is None
    assert buffer.read(buffer.position) == ([], 3)
