from __future__ import annotations

from pathlib import Path

import pytest

from gaia.mcp import MCPClientManager, MCPClientMixin
from gaia.testing import CassetteMismatch, FakeClock, FakeServer, Replay, record, replay


def echo(text: str) -> str:
    return text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A cassette in which one server was asked to say "hello", and another one for nothing."""
    file = tmp_path / "cassette.json"
    servers = {"one": {**FakeServer("one", tools=[echo]), "disabledTools": ["no_*"]}, "two": FakeServer("two")}
    with MCPClientManager(servers) as manager, record(manager, file):
        manager.call_tool("mcp_one_echo", {"text": "hello"})
    return file


def test_servers_by_name(file: Path) -> None:
    servers = replay(file)
    assert list(servers) == ["one", "two"]
    assert len(servers) == 2
    assert servers["one"]["disabledTools"] == ["no_*"]
    assert repr(servers) == f"<Replay of '{file}': one, two>"


def test_the_same_calls(file: Path) -> None:
    with replay(file) as servers, MCPClientManager(servers) as manager:
        assert isinstance(servers, Replay)
        manager.require()
        assert [tool.namespaced_name for tool in manager.list_tools()] == ["mcp_one_echo"]
        result = manager.call_tool("mcp_one_echo", {"text": "hello"})
        assert result.raise_for_error().text == "hello"
        assert manager.status()[0].pid is None


def test_an_agent_of_the_mixin(file: Path) -> None:
    class Program(MCPClientMixin):
        pass

    with replay(file) as servers:
        program = Program(mcp_servers=servers)
        try:
            assert program.list_mcp_servers() == ["one", "two"]
        finally:
            program.close_mcp()


def test_a_mismatch_fails_the_block(file: Path) -> None:
    def program() -> None:
        with replay(file) as servers, MCPClientManager(servers) as manager:
            assert manager.call_tool("mcp_one_echo", {"text": "hullo"}).is_error
            (mismatch,) = servers.mismatches
            assert "hullo" in mismatch

    with pytest.raises(CassetteMismatch, match=r"tool 'echo' .*\n@ text\n-hello\n\+hullo"):
        program()


def test_a_mismatch_is_told_with_another_failure(file: Path) -> None:
    def program() -> None:
        with replay(file) as servers, MCPClientManager(servers) as manager:
            manager.call_tool("mcp_one_echo", {"text": "hullo"})
            raise AssertionError("the agent is wrong")

    with pytest.raises(AssertionError, match="the agent is wrong") as failure:
        program()
    assert "hullo" in failure.value.__notes__[0]


def test_a_clock(file: Path) -> None:
    clock = FakeClock()
    assert servers_clock(replay(file, clock=clock)) is clock
    assert servers_clock(replay(file)) is None


def servers_clock(servers: Replay) -> object:
    return servers["one"]["inProcess"].clock


def test_a_recording_of_a_replay_is_the_same(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    manager = MCPClientManager(replay(file))
    with record(manager, again), manager:
        manager.call_tool("mcp_one_echo", {"text": "hello"})
    assert again.read_text("utf-8") == file.read_text("utf-8")
