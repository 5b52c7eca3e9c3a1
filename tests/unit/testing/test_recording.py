"""Recording servers in memory; `tests/client/test_cassettes.py` records real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import MCPClientManager, ServerUnavailable
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.testing import FakeServer, record
from tests.waiting import PATIENCE


def add(a: int, b: int) -> int:
    return a + b


def echo(text: str) -> str:
    return text


@pytest.fixture
def server() -> FakeServer:
    return FakeServer("fake", tools=[add, echo])


@pytest.fixture
def manager(server: FakeServer) -> Iterator[MCPClientManager]:
    with MCPClientManager({"fake": {**server, "timeout": PATIENCE}}) as manager:
        yield manager


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cassette.json"


def starts(file: Path, server: str = "fake") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["servers"][server]["starts"]
    return found


def calls(file: Path, start: int = 0) -> list[dict[str, Any]]:
    return [one for one in starts(file)[start]["exchanges"] if one["request"] == "tools/call"]


class TestRecord:
    def test_an_asynchronous_manager(self, server: FakeServer, file: Path) -> None:
        async def main() -> None:
            async with AsyncMCPClientManager({"fake": {**server, "timeout": PATIENCE}}) as manager:
                with record(manager, file) as recorded:
                    assert recorded is manager
                    await manager.call_tool("mcp_fake_add", {"a": 1, "b": 2})

        asyncio.run(main())
        assert [call["params"]["arguments"] for call in calls(file)] == [{"a": 1, "b": 2}]

    def test_calls_and_results(self, manager: MCPClientManager, file: Path) -> None:
        with record(manager, file) as recorded:
            assert recorded is manager
            manager.call_tool("mcp_fake_add", {"a": 1, "b": 2})
        (call,) = calls(file)
        assert call["params"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
        assert call["result"]["content"] == [{"type": "text", "text": "3"}]
        assert [one["request"] for one in starts(file)[0]["exchanges"][:2]] == ["initialize", "tools/list"]
        assert "params" not in starts(file)[0]["exchanges"][0]

    def test_a_server_that_is_ready_is_started_anew(
        self, server: FakeServer, manager: MCPClientManager, file: Path
    ) -> None:
        manager.call_tool("mcp_fake_echo", {"text": "before"})
        with record(manager, file):
            pass
        assert server.starts == 2
        assert calls(file) == []

    def test_a_server_that_is_started_later(self, server: FakeServer, file: Path) -> None:
        manager = MCPClientManager({"fake": server})
        with record(manager, file), manager:
            manager.call_tool("mcp_fake_echo", {"text": "a"})
        assert server.starts == 1
        assert len(calls(file)) == 1
        assert "end" not in starts(file)[0]

    def test_several_servers_in_the_order_of_the_configuration(self, file: Path) -> None:
        servers = {name: FakeServer(name) for name in ("zebra", "ape", "mole")}
        with MCPClientManager(servers) as manager, record(manager, file):
            pass
        assert list(json.loads(file.read_text("utf-8"))["servers"]) == ["zebra", "ape", "mole"]

    def test_settings_that_the_client_needs(self, server: FakeServer, file: Path) -> None:
        entry = {**server, "enabledTools": ["add"], "restart": {"initialDelay": 1}, "healthInterval": 7}
        with MCPClientManager({"fake": entry}) as manager, record(manager, file):
            pass
        settings = json.loads(file.read_text("utf-8"))["servers"]["fake"]["settings"]
        assert settings == {"enabledTools": ["add"], "restart": {"initialDelay": 1}}

    def test_a_start_that_fails(self, server: FakeServer, file: Path) -> None:
        manager = MCPClientManager({"fake": {**server, "restart": {"restart": "never"}}})
        server.fail_starts(1, "no such file")
        with record(manager, file), manager:
            pass
        (start,) = starts(file)
        assert "no such file" in start["failed"]

    def test_a_server_without_tools(self, server: FakeServer, file: Path) -> None:
        texts = FakeServer("texts", resources={"text://a": "A"})
        with MCPClientManager({"fake": server, "texts": texts}) as manager, record(manager, file):
            client = manager.get_client("texts")
            assert client is not None
            client.read_resource("text://a")
        (start,) = starts(file, "texts")
        assert "resources/read" in [exchange["request"] for exchange in start["exchanges"]]

    def test_a_call_that_is_given_up(self, server: FakeServer, manager: MCPClientManager, file: Path) -> None:
        server.hang(tool="echo")
        with record(manager, file):
            assert manager.call_tool("mcp_fake_echo", {"text": "a"}, timeout=0.01)["error_type"] == "timeout"
            future = manager.submit_tool("mcp_fake_add", {"a": 1, "b": 2})
            assert future.result(PATIENCE)
        assert [call.get("unanswered") for call in calls(file)] == [None, True]


class TestSecrets:
    def test_given_secrets_are_masked(self, manager: MCPClientManager, file: Path) -> None:
        with record(manager, file, secrets=["hunter22"]):
            manager.call_tool("mcp_fake_echo", {"text": "it is hunter22"})
        assert "hunter22" not in file.read_text("utf-8")
        (call,) = calls(file)
        assert call["params"]["arguments"] == {"text": "it is ***"}
        assert call["result"]["content"][0]["text"] == "it is ***"

    def test_one_text_is_no_list_of_secrets(self, manager: MCPClientManager, file: Path) -> None:
        with pytest.raises(ValueError, match="a list of texts"), record(manager, file, secrets="hunter22"):
            raise AssertionError("never reached")


class TestBlock:
    def test_an_exception_writes_nothing(self, manager: MCPClientManager, file: Path) -> None:
        file.write_text("as it was")
        with pytest.raises(ZeroDivisionError), record(manager, file):
            raise ZeroDivisionError
        assert file.read_text("utf-8") == "as it was"
        # It is over, though.
        with record(manager, file):
            pass
        assert starts(file)

    def test_a_manager_is_recorded_once_at_a_time(self, manager: MCPClientManager, file: Path) -> None:
        with record(manager, file), pytest.raises(RuntimeError, match="recorded already"), record(manager, file):
            raise AssertionError("never reached")

    def test_what_comes_later_is_not_recorded(self, manager: MCPClientManager, file: Path) -> None:
        with record(manager, file):
            pass
        before = file.read_bytes()
        assert not manager.call_tool("mcp_fake_echo", {"text": "a"}).is_error
        assert file.read_bytes() == before

    def test_a_server_that_cannot_be_restarted(self, server: FakeServer, manager: MCPClientManager, file: Path) -> None:
        server.fail_starts(1, "out of order")
        with pytest.raises(ServerUnavailable, match=r"'fake' cannot be recorded .*out of order"), record(manager, file):
            raise AssertionError("never reached")
        assert not file.exists()
