"""What a client was made of, and further clients of one server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.client_factory import Origin
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeServer

ENTRY = {"command": "uvx", "args": ["x"]}


class TestOrigin:
    @pytest.mark.parametrize(
        "same",
        [
            {"args": ["x"], "command": "uvx"},
            {**ENTRY, "timeout": 30, "drainTimeout": 30.0},
            {**ENTRY, "somethingElse": 1},
        ],
    )
    def test_entries_that_mean_the_same_are_equal(self, same: dict[str, Any]) -> None:
        assert Origin("it", same, None) == Origin("it", ENTRY, None)

    @pytest.mark.parametrize(
        "other",
        [
            {**ENTRY, "args": ["y"]},
            {**ENTRY, "env": {"A": "${B}"}},
            {**ENTRY, "disabledTools": ["x"]},
            {**ENTRY, "idleStop": 5},
            # The manager's policy may be another one than the default.
            {**ENTRY, "restart": {}},
        ],
    )
    def test_others_are_not(self, other: dict[str, Any]) -> None:
        assert Origin("it", other, None) != Origin("it", ENTRY, None)

    def test_another_file_has_other_pins(self) -> None:
        assert Origin("it", ENTRY, Path("/a.json")) != Origin("it", ENTRY, Path("/b.json"))

    def test_an_entry_must_be_usable(self) -> None:
        with pytest.raises(ConfigError, match="'it'"):
            Origin("it", {"command": 3}, None)

    def test_servers_in_memory_are_remembered_in_memory_only(self) -> None:
        assert Origin("it", ENTRY, None).memory.recall() is None


def shout(text: str) -> str:
    """Say it aloud."""
    return text.upper()


class TestInstances:
    def test_a_further_client_is_not_listed(self) -> None:
        with MCPClientManager({"it": FakeServer("it", tools=[shout])}) as manager:
            client = manager._engine.factory.new_instance("it")
            assert client.connect()
            assert client.state is ServerState.EXITED
            assert client.call_tool("shout", {"text": "x"}).text == "X"
            assert [status.name for status in manager.status()] == ["it"]
            assert manager._engine.factory.renew_instance(client) is None
            client.disconnect()

    def test_there_is_none_of_a_server_that_was_not_started(self) -> None:
        with pytest.raises(ValueError, match="'it' is not running"):
            MCPClientManager({"it": FakeServer("it")})._engine.factory.new_instance("it")
