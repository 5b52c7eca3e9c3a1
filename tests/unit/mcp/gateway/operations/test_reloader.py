"""Files are read again, one time after the other, and what is wrong with them changes nothing."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.operations.reloader import FileWatch, Reloader, Source
from gaia.mcp.gateway.operations.status import ReloadStatus
from tests.gateway.fake_loop import FakeLoop
from tests.waiting import PATIENCE


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def source(applied: list[str], value: str, file: Path | None = None) -> Source:
    return Source(lambda: [] if file is None else [file], lambda: lambda: applied.append(value))


def refusing() -> Source:
    def load() -> Callable[[], Any]:
        raise ConfigError("a.json: it is wrong")

    return Source(list, load)


async def test_a_changed_file_is_read_after_it_has_stayed_the_same(tmp_path: Path) -> None:
    loop, applied = FakeLoop(), list[str]()
    file = tmp_path / "a.json"
    file.write_text("{}")
    reloader = Reloader([source(applied, "a", file)], loop)
    reloader.start()
    loop.advance(5)
    assert applied == []
    file.write_text("{ }")
    loop.advance(2)
    await reloader.wait()
    assert applied == ["a"]
    loop.advance(5)
    await reloader.wait()
    assert applied == ["a"]
    reloader.stop()
    assert loop.pending == 0


async def test_nothing_is_applied_if_one_source_cannot_be_used() -> None:
    applied, seen = list[str](), list[ReloadStatus]()
    reloader = Reloader([source(applied, "a"), refusing()], FakeLoop(), ended=seen.append)
    reloader.reload()
    await reloader.wait()
    assert applied == []
    assert [one.error for one in seen] == ["a.json: it is wrong"]


async def test_what_is_asked_for_meanwhile_is_done_once_afterwards() -> None:
    began, applied = list[str](), list[str]()
    reading, go_on = threading.Event(), threading.Event()

    def load() -> Callable[[], Any]:
        reading.set()
        assert go_on.wait(PATIENCE)
        return lambda: applied.append("a")

    reloader = Reloader([Source(list, load)], FakeLoop(), began=lambda: began.append(""))
    reloader.reload()
    await asyncio.to_thread(reading.wait, PATIENCE)
    reloader.reload()
    reloader.reload()
    go_on.set()
    await reloader.wait()
    assert (len(began), applied) == (2, ["a", "a"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.json"
    file.write_text("{}")
    return file


def test_a_change_counts_once_and_only_when_it_stays(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    assert [watch.look(), watch.look()] == [False, False]
    file.write_text("{ }")
    assert watch.look() is False
    file.write_text("{  }")
    assert watch.look() is False
    assert [watch.look(), watch.look()] == [True, False]


def test_a_file_that_appears_vanishes_or_is_replaced_has_changed(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "b.json"
    watch = FileWatch(lambda: [file, other])
    other.write_text("{}")
    assert [watch.look(), watch.look()] == [False, True]
    other.replace(file)
    assert [watch.look(), watch.look()] == [False, True]
    file.unlink()
    assert [watch.look(), watch.look()] == [False, True]


def test_what_was_taken_is_no_change(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    file.write_text("{ }")
    watch.taken()
    assert [watch.look(), watch.look()] == [False, False]
