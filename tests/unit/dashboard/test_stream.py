"""The live stream, beside any HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gaia.dashboard import stream
from gaia.dashboard.journal import Journal
from gaia.dashboard.stream import Stream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.001)


def make(journal: Journal, *running: list[dict[str, Any]]) -> Stream:
    """A stream of one server; `running` is what it finds under way at one look after the other, then nothing."""
    servers = [{"name": "it"}]
    looks = iter(running)
    return Stream(journal, lambda: {"servers": servers, "running": []}, lambda: servers, lambda: next(looks, []))


async def following(chunks: AsyncIterator[bytes]) -> list[tuple[str, Any]]:
    """The events in the next chunk."""
    blocks = (await anext(chunks)).decode().strip().split("\n\n")
    pairs = [block.split("\n", 1) for block in blocks]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in pairs]


def test_changes_follow_the_snapshot() -> None:
    journal = Journal()

    async def look() -> None:
        chunks = make(journal, [], [{"tool": "sleep"}], [{"tool": "sleep"}], []).events()
        assert [kind for kind, _ in await following(chunks)] == ["snapshot"]
        journal.write("call", {"tool": "echo\nline"})
        assert await following(chunks) == [("call", {"tool": "echo\nline"})]
        assert await following(chunks) == [("running", [{"tool": "sleep"}])]
        assert await following(chunks) == [("running", [])]

    asyncio.run(look())


def test_one_that_fell_behind_starts_afresh() -> None:
    journal = Journal(limit=2)

    async def look() -> None:
        chunks = make(journal).events()
        await following(chunks)
        for number in range(5):
            journal.write("call", {"n": number})
        assert [kind for kind, _ in await following(chunks)] == ["snapshot"]
        journal.write("call", {"n": 6})
        assert await following(chunks) == [("call", {"n": 6})]

    asyncio.run(look())


def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_PROOF_SECONDS", 0.01)

    async def look() -> None:
        chunks = make(Journal()).events()
        await following(chunks)
        assert (await anext(chunks)).startswith(b":")

    asyncio.run(look())


def test_readers_are_counted_until_they_leave() -> None:
    async def look() -> None:
        watched = make(Journal())
        chunks = watched.events()
        await following(chunks)
        assert watched.readers == 1
        watched.close()
        assert [chunk async for chunk in chunks] == []
        assert watched.readers == 0

    asyncio.run(look())
