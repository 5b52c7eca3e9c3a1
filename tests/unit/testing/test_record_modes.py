"""A cassette is replayed, recorded or extended as the mode says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaia.testing import CassetteMismatch, FakeServer, use_cassette
from gaia.testing.cassette import Cassette


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@pytest.fixture
def server() -> FakeServer:
    return FakeServer("sums", tools=[add])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "sums.json"


def summed(file: Path, server: FakeServer, b: int, **options: Any) -> Any:
    with use_cassette(file, {"sums": server}, **options) as manager:
        return manager.call_tool("mcp_sums_add", {"a": 1, "b": b}).structured


def test_once_records_if_there_is_no_file_and_then_asks_no_server(file: Path, server: FakeServer) -> None:
    assert summed(file, server, 2, mode="once") == {"sum": 3}
    calls = len(server.calls)

    assert summed(file, server, 2, mode="once") == {"sum": 3}
    with pytest.raises(CassetteMismatch):
        summed(file, server, 3, mode="once")
    assert len(server.calls) == calls


def test_none_is_an_error_without_a_file(file: Path, server: FakeServer) -> None:
    with pytest.raises(FileNotFoundError, match="pytest --mcp-record=once"):
        summed(file, server, 2, mode="none")
    assert server.starts == 0
    assert not file.exists()


@pytest.mark.parametrize(("variable", "recorded"), [("true", False), ("1", False), ("false", True), ("", True)])
def test_in_continuous_integration_nothing_is_recorded(
    file: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch, variable: str, recorded: bool
) -> None:
    monkeypatch.setenv("CI", variable)
    if recorded:
        summed(file, server, 2)
    else:
        with pytest.raises(FileNotFoundError):
            summed(file, server, 2)
    assert file.exists() is recorded


def test_all_records_anew(file: Path, server: FakeServer) -> None:
    summed(file, server, 2, mode="once")

    assert summed(file, server, 3, mode="all") == {"sum": 4}
    assert summed(file, server, 3, mode="none") == {"sum": 4}


def test_new_episodes_asks_the_server_for_what_is_missing_and_adds_it(file: Path, server: FakeServer) -> None:
    summed(file, server, 2, mode="new_episodes")
    starts, before = server.starts, file.read_bytes()
    # All of this is recorded.
    assert summed(file, server, 2, mode="new_episodes") == {"sum": 3}
    assert (server.starts, file.read_bytes()) == (starts, before)

    with use_cassette(file, {"sums": server}, mode="new_episodes") as manager:
        sums = [manager.call_tool("mcp_sums_add", {"a": 1, "b": b}).structured for b in (2, 3)]

    assert sums == [{"sum": 3}, {"sum": 4}]
    assert [call.arguments["b"] for call in server.calls] == [2, 3]
    (start,) = Cassette.read(file).servers["sums"].starts
    assert [exchange.params["arguments"]["b"] for exchange in start.exchanges if exchange.is_call] == [2, 3]
    assert summed(file, server, 3, mode="none") == {"sum": 4}


def test_another_mode_is_refused(file: Path, server: FakeServer) -> None:
    with pytest.raises(ValueError, match="mode: must be one of none, once, new_episodes, all"):
        summed(file, server, 2, mode="some")
