"""What a client was made of, and further clients of one server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.client_factory import Origin
from gaia.mcp.client.server_memory import ServerMemory, identity_of
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.negotiation import HANDSHAKE as HANDSHAKE_ERA
from gaia.mcp.protocol.negotiation import STATELESS as STATELESS_ERA
from gaia.mcp.supervision.events import ServerState
from gaia.runtime import json_file
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


TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}, "ours": [1, None]}]
PROFILE = ServerProfile("2025-11-25", {"name": "x"}, {"tools": {"listChanged": True}}, HANDSHAKE_ERA, "Hello")
STATELESS = ServerProfile("2026-07-28", {}, {}, STATELESS_ERA)
FILE = Path("servers.json")


def server(**entry: Any) -> ServerConfig:
    return ServerConfig.from_dict("it", {"command": "uvx", **entry})


def files() -> list[Path]:
    return sorted((Path.home() / ".gaia" / "known_servers").glob("*"))


@pytest.mark.parametrize("profile", [PROFILE, STATELESS])
def test_another_process_knows_it(profile: ServerProfile) -> None:
    ServerMemory("a").remember(profile, TOOLS)
    known = ServerMemory("a").recall()
    assert known is not None
    known_profile, tools = known
    assert tools == TOOLS
    assert known_profile is not None
    assert known_profile.era.is_stateless == profile.era.is_stateless
    assert [known_profile.protocol_version, known_profile.instructions, known_profile.capabilities] == [
        profile.protocol_version,
        profile.instructions,
        profile.capabilities,
    ]
    assert ServerMemory("b").recall() is None
    (file,) = files()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_without_an_identity_no_file_is_written() -> None:
    memory = ServerMemory()
    assert memory.recall() is None
    memory.remember(PROFILE, TOOLS)
    assert memory.recall() is not None
    assert files() == []


def test_what_has_not_changed_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ServerMemory("a")
    memory.remember(PROFILE, TOOLS)
    written: list[object] = []
    monkeypatch.setattr(json_file, "write", lambda *args: written.append(args))
    memory.remember(PROFILE, list(TOOLS))
    ServerMemory("a").remember(PROFILE, TOOLS)
    assert written == []
    memory.remember(PROFILE, [])
    assert len(written) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda file: file.write_text("{"), "not valid JSON"),
        (lambda file: file.write_text('{"version": 2}'), "version"),
        (lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), "tools": 3})), "tools"),
        (lambda file: file.chmod(0o666), "every user"),
        (lambda file: file.rename(file.with_suffix(".old")) and os.mkfifo(file), "not a file"),
    ],
)
def test_what_cannot_be_used_is_as_good_as_nothing(
    spoil: Callable[[Path], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    ServerMemory("a").remember(PROFILE, TOOLS)
    spoil(files()[0])
    memory = ServerMemory("a")
    assert memory.recall() is None
    assert reason in caplog.text
    assert memory.recall() is None
    assert caplog.text.count("server_memory_unusable") == 1


def test_what_cannot_be_saved_is_remembered_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    (Path.home() / ".gaia").write_text("")
    memory = ServerMemory("a")
    memory.remember(PROFILE, TOOLS)
    assert "server_memory_not_saved" in caplog.text
    assert memory.recall() is not None


class TestIdentity:
    @pytest.mark.parametrize("other", [{"args": ["x"]}, {"cwd": "/"}, {"env": {"A": "1"}}, {"protocol": "stateless"}])
    def test_another_command_is_another_server(self, other: dict[str, Any]) -> None:
        assert identity_of(server(**other), FILE) != identity_of(server(), FILE)

    @pytest.mark.parametrize("same", [{"timeout": 5}, {"lazy": True}, {"disabledTools": ["x"]}])
    def test_how_it_is_used_does_not_matter(self, same: dict[str, Any]) -> None:
        assert identity_of(server(**same), FILE) == identity_of(server(), FILE)

    def test_neither_do_the_values_of_variables(self) -> None:
        assert identity_of(server(env={"TOKEN": "a"}), FILE) == identity_of(server(env={"TOKEN": "b"}), FILE)

    def test_the_same_command_in_another_project_is_another_server(self) -> None:
        assert identity_of(server(), FILE) != identity_of(server(), Path("other") / FILE)
