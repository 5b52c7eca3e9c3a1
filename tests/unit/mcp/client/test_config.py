"""The files that say which servers there are: how they stack, how they are saved, and how they are left alone."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from gaia.mcp.client import config as config_module
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.config.config_files import read_project
from gaia.mcp.config.trust import TrustStore
from gaia.mcp.errors import ConfigError

TIME = {"command": "uvx", "args": ["mcp-server-time"]}
LogEvents = Callable[[str], list[dict[str, Any]]]
ACER = {"command": "dotnet", "args": ["run", "--project", "/path/to/oem"]}


def write(file: Path, document: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return file


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture
def global_file(home: Path) -> Path:
    return home / ".gaia" / "mcp_servers.json"


@pytest.fixture
def local_file(tmp_path: Path) -> Path:
    """Where a project's servers are: tests work in `tmp_path`."""
    return tmp_path / "mcp_servers.json"


@pytest.fixture
def some_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "servers.json"


@pytest.fixture
def config(some_file: Path) -> MCPConfig:
    """Over a file with one server."""
    return MCPConfig(write(some_file, {"mcpServers": {"time": TIME}}))


@pytest.fixture(autouse=True)
def nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "_reported", set())


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Have a file or a folder belong to another user than the one that runs this."""

    def change(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 54321, -1)
        else:
            # What is ours is another user's for a program that runs as somebody else.
            monkeypatch.setattr(os, "geteuid", lambda: 54321)

    return change


class TestOtherUsers:
    """Who can write the file says which programs are started."""

    @pytest.fixture(params=["global_file", "local_file"])
    def file(self, request: pytest.FixtureRequest) -> Path:
        return write(request.getfixturevalue(request.param), {"mcpServers": {"time": TIME}})

    def test_a_file_that_everybody_can_write_is_refused(self, file: Path) -> None:
        file.chmod(0o666)
        with pytest.raises(ConfigError, match=f"chmod o-w {file} "):
            MCPConfig()

    def test_so_is_one_in_such_a_folder(self, file: Path) -> None:
        file.parent.chmod(0o777)
        with pytest.raises(ConfigError, match=f"chmod o-w {file.parent} "):
            MCPConfig()

    def test_a_folder_where_each_user_has_files_of_their_own_is_none(self, file: Path) -> None:
        file.parent.chmod(0o1777)
        assert MCPConfig().server_exists("time")

    def test_a_file_of_another_user_is_refused(self, file: Path, give_away: Callable[[Path], None]) -> None:
        give_away(file)
        with pytest.raises(ConfigError, match=f"{file} belongs to another user; run: sudo chown"):
            MCPConfig()

    def test_so_is_the_target_of_a_link(self, file: Path, tmp_path: Path) -> None:
        target = write(tmp_path / "shared" / "servers.json", read(file))
        target.chmod(0o666)
        file.unlink()
        file.symlink_to(target)
        with pytest.raises(ConfigError, match=f"chmod o-w {target} "):
            MCPConfig()

    def test_content_that_the_user_has_trusted_is_used(self, file: Path) -> None:
        file.chmod(0o666)
        TrustStore().trust(read_project(file))
        assert MCPConfig().server_exists("time")
        write(file, {"mcpServers": {"evil": TIME}})
        with pytest.raises(ConfigError, match="gaia mcp trust"):
            MCPConfig()

    def test_a_file_that_is_named_is_the_callers_choice(self, file: Path) -> None:
        file.chmod(0o666)
        assert MCPConfig(file).server_exists("time")


class TestLinks:
    def test_a_projects_link_out_of_it_is_not_written_through(
        self, local_file: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        elsewhere = write(tmp_path_factory.mktemp("elsewhere") / "settings.json", {"mcpServers": {"time": TIME}})
        before = elsewhere.read_bytes()
        local_file.symlink_to(elsewhere)
        config = MCPConfig()
        with pytest.raises(ConfigError, match=f"{local_file}: is a symbolic link to {elsewhere}"):
            config.add_server("new", TIME)
        with pytest.raises(ConfigError, match="name that file with --config"):
            config.remove_server("time")
        assert elsewhere.read_bytes() == before
        assert os.listdir(elsewhere.parent) == [elsewhere.name]

    def test_one_within_the_project_is(self, local_file: Path, tmp_path: Path) -> None:
        inside = write(tmp_path / "config" / "servers.json", {"mcpServers": {}})
        local_file.symlink_to(inside)
        MCPConfig().add_server("time", TIME)
        assert local_file.is_symlink()
        assert read(inside) == {"mcpServers": {"time": TIME}}

    def test_so_is_the_users_own_which_programs_for_dotfiles_make(
        self, global_file: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        dotfiles = write(tmp_path_factory.mktemp("dotfiles") / "servers.json", {"mcpServers": {}})
        global_file.parent.mkdir()
        global_file.symlink_to(dotfiles)
        MCPConfig().add_server("time", TIME)
        assert global_file.is_symlink()
        assert read(dotfiles) == {"mcpServers": {"time": TIME}}


class TestStacking:
    def test_servers_of_both_files_are_loaded_and_the_local_version_of_one_wins(
        self, global_file: Path, local_file: Path
    ) -> None:
        local = {"time": {"command": "local"}, "mine": {"command": "x"}}
        write(global_file, {"mcpServers": {"time": TIME, "acer": ACER}})
        write(local_file, {"mcpServers": local})
        config = MCPConfig()
        assert config.get_servers() == {**local, "acer": ACER}
        sources = {name: config.source_of(name) for name in config.get_servers()}
        assert sources == {"time": local_file, "mine": local_file, "acer": global_file}

    def test_an_empty_global_file_does_not_hide_the_local_one(self, global_file: Path, local_file: Path) -> None:
        write(global_file, {"mcpServers": {}})
        write(local_file, {"mcpServers": {"time": TIME}})
        assert MCPConfig().get_servers() == {"time": TIME}

    def test_without_files_there_are_no_servers_but_a_private_home_folder(
        self, global_file: Path, tmp_path: Path
    ) -> None:
        config = MCPConfig()
        assert config.get_servers() == {}
        assert config.config_file == global_file
        assert not global_file.exists()
        assert stat.S_IMODE(global_file.parent.stat().st_mode) == 0o700
        assert list(tmp_path.iterdir()) == []

    def test_an_explicit_file_is_the_only_one(self, global_file: Path, local_file: Path, some_file: Path) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        write(local_file, {"mcpServers": {"acer": ACER}})
        write(some_file, {"mcpServers": {"mine": {"command": "x"}}})
        config = MCPConfig(str(some_file))
        assert config.get_servers() == {"mine": {"command": "x"}}
        assert config.config_file == some_file

    @pytest.mark.parametrize("legacy", ["global", "local", "both"])
    def test_the_legacy_key_is_read_in_either_file(self, legacy: str, global_file: Path, local_file: Path) -> None:
        write(global_file, {"mcpServers" if legacy == "local" else "servers": {"time": TIME}})
        write(local_file, {"mcpServers" if legacy == "global" else "servers": {"acer": ACER}})
        assert MCPConfig().get_servers() == {"time": TIME, "acer": ACER}

    def test_the_newer_key_wins_over_the_legacy_one_in_one_file(self, some_file: Path) -> None:
        write(some_file, {"mcpServers": {"a": {"command": "new"}}, "servers": {"a": {"command": "old"}, "b": TIME}})
        assert MCPConfig(some_file).get_servers() == {"a": {"command": "new"}, "b": TIME}

    def test_a_program_in_the_folder_of_the_global_file_loads_it_once(
        self, global_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        monkeypatch.chdir(global_file.parent)
        config = MCPConfig()
        assert [file for file in config._layers if file is not None] == [global_file]
        config.remove_server("time")
        assert read(global_file) == {"mcpServers": {}}

    def test_a_file_in_place_of_the_home_folder_is_explained(self, home: Path) -> None:
        (home / ".gaia").write_text("not a folder")
        with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
            MCPConfig()

    def test_a_home_folder_that_cannot_be_made_is_no_problem_until_a_save(self, mocker: Any) -> None:
        mocker.patch.object(Path, "mkdir", side_effect=OSError(errno.EROFS, "Read-only file system"))
        config = MCPConfig()
        assert config.get_servers() == {}
        with pytest.raises(ConfigError, match="cannot be saved: Read-only file system"):
            config.add_server("time", TIME)

    def test_a_current_directory_that_is_gone_has_no_local_file(
        self, global_file: Path, tmp_path: Path, mocker: Any
    ) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        mocker.patch.object(Path, "cwd", side_effect=FileNotFoundError(2, "No such file or directory"))
        assert MCPConfig().get_servers() == {"time": TIME}

    def test_the_home_of_an_unknown_user_is_explained(self) -> None:
        with pytest.raises(ConfigError, match=r"~nobody-of-this-name/x\.json: there is no such home directory"):
            MCPConfig("~nobody-of-this-name/x.json")

    def test_a_relative_file_stays_where_it_was_when_the_program_moves(
        self, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = MCPConfig("servers.json", create=True)
        monkeypatch.chdir(home)
        config.add_server("time", TIME)
        assert read(tmp_path / "servers.json") == {"mcpServers": {"time": TIME}}


@pytest.fixture
def unwritten(home: Path, tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves anything in its home or working directory."""
    yield
    assert list(home.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unwritten")
class TestInMemory:
    def test_it_has_the_servers_that_it_was_given_in_their_order_until_they_are_changed(self) -> None:
        config = MCPConfig.in_memory({"time": TIME, "acer": ACER})
        assert list(config.get_servers().items()) == [("time", TIME), ("acer", ACER)]
        assert config.get_server("time") == TIME
        assert config.server_exists("acer")
        assert config.config_file is config.source_of("time") is config.untrusted is None
        config.add_server("new", ACER)
        config.remove_server("time")
        config.remove_server("unknown")
        assert config.get_servers() == {"acer": ACER, "new": ACER}

    def test_what_was_given_may_be_changed_afterwards(self) -> None:
        entry = {"command": "x", "args": ["a"]}
        config = MCPConfig.in_memory({"time": MappingProxyType(entry)})
        entry["args"] = []
        assert config.get_server("time") == {"command": "x", "args": ["a"]}

    def test_files_are_not_read(self, global_file: Path, local_file: Path) -> None:
        write(global_file, "{")
        write(local_file, "{")
        assert MCPConfig.in_memory({}).get_servers() == {}
        global_file.unlink()
        global_file.parent.rmdir()
        local_file.unlink()

    @pytest.mark.parametrize(("name", "entry"), [("", TIME), ("time", {"command": object()}), ("time", {"a": {1, 2}})])
    def test_what_a_file_cannot_hold_is_refused(self, name: str, entry: Any) -> None:
        with pytest.raises(ConfigError):
            MCPConfig.in_memory({name: entry})

    def test_an_entry_that_cannot_be_used_does_not_hide_the_others(self) -> None:
        config = MCPConfig.in_memory({"text": "uvx x", "time": TIME})  # type: ignore[dict-item]
        assert config.get_servers() == {"time": TIME}
        assert config.problems == {"text": "server 'text': expected a config dict with a 'command', got a string"}
        with pytest.raises(ConfigError, match="server 'text'"):
            MCPConfig.in_memory({"text": "uvx x", "time": TIME}, strict=True)  # type: ignore[dict-item]


class TestUnsaved:
    """Servers that a program declares over those of the files."""

    def test_it_counts_before_those_of_the_files_until_a_save_takes_its_place(
        self, config: MCPConfig, some_file: Path
    ) -> None:
        before = some_file.read_bytes()
        config.add_server("time", ACER, save=False)
        config.add_server("new", TIME, save=False)
        assert config.get_servers() == {"time": ACER, "new": TIME}
        assert config.source_of("time") is None
        assert some_file.read_bytes() == before
        config.add_server("time", TIME)
        assert config.get_server("time") == TIME
        assert config.source_of("time") == some_file

    def test_a_save_that_fails_leaves_it(self, config: MCPConfig, some_file: Path) -> None:
        config.add_server("time", ACER, save=False)
        write(some_file, "{")
        with pytest.raises(ConfigError):
            config.add_server("time", TIME)
        assert config.get_server("time") == ACER

    def test_a_removal_changes_no_file_unless_it_is_asked_to(self, config: MCPConfig, some_file: Path) -> None:
        config.add_server("time", ACER, save=False)
        assert config.remove_server("time") == []
        assert config.get_server("time") == TIME
        config.add_server("time", ACER, save=False)
        assert config.remove_server("time", everywhere=True) == [some_file]
        assert not config.server_exists("time")
        assert read(some_file) == {"mcpServers": {}}


class TestReading:
    def test_what_is_returned_is_a_copy(self, config: MCPConfig) -> None:
        config.get_server("time")["args"].append("x")
        config.get_servers()["time"]["args"].append("y")
        config.get_servers().clear()
        assert config.get_servers() == {"time": TIME}

    def test_an_unknown_server_is_empty(self, config: MCPConfig) -> None:
        assert config.get_server("nope") == {}
        assert config.source_of("nope") is None
        assert not config.server_exists("nope")
        assert config.server_exists("time")

    def test_variables_are_not_expanded(self, some_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", "hunter2")
        entry = {"command": "x", "env": {"TOKEN": "${TOKEN}"}}
        config = MCPConfig(write(some_file, {"mcpServers": {"a": entry}}))
        config.add_server("b", entry)
        assert config.get_server("a") == config.get_server("b") == entry
        assert "hunter2" not in some_file.read_text()

    def test_a_value_that_came_from_a_variable_of_another_process_is_saved_as_the_variable(
        self, some_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN", "hunter2-hunter2")
        config = MCPConfig(write(some_file, {"mcpServers": {"a": {"command": "x"}}}))
        write(some_file, {"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "${TOKEN}"}}}})

        config.add_server("a", {"command": "y", "env": {"TOKEN": "hunter2-hunter2"}})

        assert read(some_file) == {"mcpServers": {"a": {"command": "y", "env": {"TOKEN": "${TOKEN}"}}}}

    def test_a_value_that_came_from_a_variable_is_saved_as_the_variable(
        self, some_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN", "hunter2-hunter2")
        entry = {
            "command": "x",
            "args": ["--url", "db://${TOKEN}@host"],
            "env": {"TOKEN": "${TOKEN}", "TZ": "${TZ:-UTC}"},
        }
        config = MCPConfig(write(some_file, {"mcpServers": {"a": entry}}))
        read_by_the_program = {"TOKEN": os.environ["TOKEN"], "TZ": "CET"}
        args = ["--url", f"db://{os.environ['TOKEN']}@host"]
        config.add_server("a", {"command": "y", "args": args, "env": read_by_the_program})
        expected = {"command": "y", "args": entry["args"], "env": {"TOKEN": "${TOKEN}", "TZ": "CET"}}
        assert read(some_file) == {"mcpServers": {"a": expected}}
        assert config.get_server("a") == expected

    @pytest.mark.parametrize(
        ("content", "servers"),
        [
            *((content, {}) for content in (b"", b" \n", b"\xef\xbb\xbf", b"{}", b'{"other": 1}')),
            pytest.param(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "1"}}}', {"a": {"command": "1"}}, id="a mark"),
        ],
    )
    def test_an_empty_file_holds_no_servers_and_a_byte_order_mark_is_accepted(
        self, some_file: Path, content: bytes, servers: Any
    ) -> None:
        write(some_file, "").write_bytes(content)
        assert MCPConfig(some_file).get_servers() == servers

    def test_of_a_key_that_is_there_twice_the_last_counts(self, some_file: Path) -> None:
        write(some_file, '{"mcpServers": {"a": {"command": "1"}, "a": {"command": "2"}}}')
        assert MCPConfig(some_file).get_server("a") == {"command": "2"}


BROKEN = [
    pytest.param(b'{"mcpServers": {\n  "a": }\n}', "line 2, column 8: not valid JSON: Expecting value", id="bad JSON"),
    pytest.param(b'{"mcpServers": {}} x', "line 1, column 20: not valid JSON: Extra data", id="extra data"),
    pytest.param(b'{\n "mcpServers": {"\xc3\xa9\xff', "line 2, column 19: not UTF-8", id="not UTF-8"),
    pytest.param('{"a": 1}'.encode("utf-16"), "line 1, column 1: not UTF-8", id="UTF-16"),
    pytest.param(b'\xef\xbb\xbf{"\xff', "line 1, column 3: not UTF-8", id="not UTF-8 after a mark"),
    pytest.param(b"[]", "expected an object like", id="a list"),
    pytest.param(b"null", "expected an object like", id="null"),
    pytest.param(b'{"mcpServers": []}', "mcpServers: expected an object like", id="servers in a list"),
    pytest.param(b'{"servers": 5}', "servers: expected an object like", id="servers in a number"),
    pytest.param(b'{"x": NaN}', "not usable JSON: NaN is not a JSON value", id="NaN"),
    pytest.param(b'{"x": -1e999}', "not usable JSON: -1e999 is not a JSON value", id="infinite"),
    pytest.param(b'{"x": ' + b"9" * 5000 + b"}", "not usable JSON: Exceeds the limit", id="endless number"),
    pytest.param(b'{"x": ' + b"[" * 100_000, "not usable JSON: maximum recursion", id="endless nesting"),
]


class TestBrokenFiles:
    @pytest.mark.parametrize(("content", "said"), BROKEN)
    def test_it_is_an_error_that_says_where(self, some_file: Path, content: bytes, said: str) -> None:
        write(some_file, "").write_bytes(content)
        with pytest.raises(ConfigError) as refusal:
            MCPConfig(some_file)
        assert str(refusal.value).startswith(f"{some_file}: {said}")

    @pytest.mark.parametrize(("content", "said"), BROKEN)
    def test_one_that_broke_since_it_was_loaded_is_not_overwritten(
        self, config: MCPConfig, some_file: Path, content: bytes, said: str
    ) -> None:
        some_file.write_bytes(content)
        with pytest.raises(ConfigError) as adding:
            config.add_server("acer", ACER)
        with pytest.raises(ConfigError) as removing:
            config.remove_server("time")
        assert said in str(adding.value)
        assert said in str(removing.value)
        assert some_file.read_bytes() == content
        assert config.get_servers() == {"time": TIME}

    def test_a_broken_file_of_two_leaves_both_alone(self, global_file: Path, local_file: Path) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        write(local_file, {"mcpServers": {"time": TIME}})
        config = MCPConfig()
        write(local_file, "{")
        with pytest.raises(ConfigError, match="line 1, column 2"):
            config.remove_server("time", everywhere=True)
        assert read(global_file) == {"mcpServers": {"time": TIME}}
        assert config.server_exists("time")

    def test_a_folder_is_no_file(self, some_file: Path) -> None:
        some_file.mkdir(parents=True)
        with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
            MCPConfig(some_file)


class TestAdding:
    def test_it_is_saved_at_once_and_replaces_its_namesake(self, some_file: Path) -> None:
        config = MCPConfig(some_file, create=True)
        config.add_server("time", {"command": "old", "env": {"A": "b"}})
        config.add_server("time", TIME)
        assert config.get_server("time") == TIME
        assert config.source_of("time") == some_file
        assert MCPConfig(some_file).get_servers() == {"time": TIME}

    def test_without_a_local_file_the_global_one_is_written(self, global_file: Path, local_file: Path) -> None:
        config = MCPConfig()
        config.add_server("time", TIME)
        assert read(global_file) == {"mcpServers": {"time": TIME}}
        assert not local_file.exists()

    def test_with_a_local_file_only_that_is_written_and_global_servers_are_overridden_not_changed(
        self, global_file: Path, local_file: Path
    ) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        write(local_file, {"mcpServers": {}})
        before = global_file.read_bytes()
        config = MCPConfig()
        config.add_server("acer", ACER)
        assert read(local_file) == {"mcpServers": {"acer": ACER}}
        assert config.get_servers() == {"time": TIME, "acer": ACER}
        config.add_server("time", ACER)
        assert config.get_server("time") == ACER
        assert config.source_of("time") == local_file
        assert global_file.read_bytes() == before

    def test_a_local_file_that_appears_later_does_not_count(self, global_file: Path, local_file: Path) -> None:
        config = MCPConfig()
        write(local_file, {"mcpServers": {}})
        config.add_server("time", TIME)
        assert read(local_file) == {"mcpServers": {}}
        assert read(global_file) == {"mcpServers": {"time": TIME}}

    def test_a_file_with_the_legacy_key_keeps_it(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"servers": {"time": TIME}}))
        config.add_server("acer", ACER)
        assert read(some_file) == {"servers": {"time": TIME, "acer": ACER}}

    def test_a_server_stays_under_the_key_where_it_is(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"mcpServers": {}, "servers": {"time": TIME}}))
        config.add_server("time", ACER)
        config.add_server("new", TIME)
        assert read(some_file) == {"mcpServers": {"new": TIME}, "servers": {"time": ACER}}

    def test_unknown_keys_and_their_order_are_kept(self, some_file: Path) -> None:
        document = {"$schema": "x", "mcpServers": {"time": {**TIME, "autoApprove": ["now"]}}, "theme": {"dark": True}}
        config = MCPConfig(write(some_file, document))
        config.add_server("acer", ACER)
        assert list(read(some_file)) == ["$schema", "mcpServers", "theme"]
        assert read(some_file) == {**document, "mcpServers": {**document["mcpServers"], "acer": ACER}}  # type: ignore[dict-item]

    def test_the_file_is_written_for_people_in_a_private_folder(self, some_file: Path) -> None:
        MCPConfig(some_file, create=True).add_server("zeit", {"command": "größe"})
        assert some_file.read_text(encoding="utf-8") == (
            '{\n  "mcpServers": {\n    "zeit": {\n      "command": "größe"\n    }\n  }\n}\n'
        )
        assert stat.S_IMODE(some_file.parent.stat().st_mode) == 0o700

    @pytest.mark.parametrize("mode", [0o644, 0o666, 0o600])
    def test_the_file_is_private_whatever_it_was(self, some_file: Path, mode: int) -> None:
        write(some_file, {}).chmod(mode)
        MCPConfig(some_file, create=True).add_server("time", TIME)
        assert stat.S_IMODE(some_file.stat().st_mode) == 0o600

    def test_the_whole_file_is_on_disk_before_it_takes_its_place(self, some_file: Path, mocker: Any) -> None:
        synchronised, replaced = os.fsync, os.replace
        steps: list[tuple[str, int]] = []

        def fsync(descriptor: int) -> None:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                steps.append(("fsync", os.fstat(descriptor).st_size))
            synchronised(descriptor)

        def replace(source: str, target: Path) -> None:
            steps.append(("replace", os.stat(source).st_size))
            replaced(source, target)

        mocker.patch.object(os, "fsync", side_effect=fsync)
        mocker.patch.object(os, "replace", side_effect=replace)
        MCPConfig(some_file, create=True).add_server("time", TIME)
        size = some_file.stat().st_size
        assert steps == [("fsync", size), ("replace", size)]

    def test_a_symbolic_link_stays_one(self, some_file: Path, tmp_path: Path) -> None:
        write(some_file, {"mcpServers": {"time": TIME}})
        link = tmp_path / "link.json"
        link.symlink_to(some_file)
        config = MCPConfig(link)
        config.add_server("acer", ACER)
        assert link.is_symlink()
        assert read(some_file) == {"mcpServers": {"time": TIME, "acer": ACER}}
        assert config.config_file == link

    def test_a_link_to_a_file_that_does_not_exist_yet_makes_it(self, some_file: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.json"
        link.symlink_to(some_file)
        MCPConfig(link, create=True).add_server("time", TIME)
        assert link.is_symlink()
        assert read(some_file) == {"mcpServers": {"time": TIME}}

    def test_memory_holds_what_a_reader_of_the_file_would_see(self, some_file: Path) -> None:
        config = MCPConfig(some_file, create=True)
        config.add_server("time", {"command": "x", "args": ("a",), "env": {1: "b"}})
        assert config.get_servers() == MCPConfig(some_file).get_servers()

    @pytest.mark.parametrize(
        ("name", "entry", "said"),
        [
            ("", TIME, "expected a server name, got ''"),
            (None, TIME, "expected a server name, got None"),
            ("time", "uvx mcp-server-time", "server 'time': expected a config dict with a 'command', got a string"),
            ("time", {}, "server 'time': command: missing"),
            (
                "time",
                {"command": "x", "disabledTool": ["a"]},
                "server 'time': the key 'disabledTool' means nothing here",
            ),
            ("time", None, "server 'time': expected a config dict"),
            ("time", {"command": object()}, "server 'time': the config dict cannot be saved as JSON: Object of type"),
            ("time", {"timeout": float("inf")}, "server 'time': the config dict cannot be saved as JSON: Out of range"),
        ],
    )
    def test_what_cannot_be_saved_is_refused_before_the_file_is_touched(
        self, some_file: Path, name: Any, entry: Any, said: str
    ) -> None:
        with pytest.raises(ConfigError, match=f".*{said}"):
            MCPConfig(some_file, create=True).add_server(name, entry)
        assert not some_file.parent.exists()


def test_a_server_without_a_name_cannot_be_used(some_file: Path) -> None:
    config = MCPConfig(write(some_file, {"mcpServers": {"": TIME, "time": TIME}}))
    assert list(config.get_servers()) == ["time"]
    assert config.problems == {"": f"{some_file}: server '': it has no name; give it one that is not empty"}
    config.remove_server("")
    assert read(some_file) == {"mcpServers": {"time": TIME}}


class TestRemoving:
    def test_it_is_removed_from_the_file_that_counts(self, global_file: Path, local_file: Path) -> None:
        write(global_file, {"mcpServers": {"time": TIME}})
        write(local_file, {"mcpServers": {"time": ACER}})
        before = global_file.read_bytes()
        config = MCPConfig()
        assert config.remove_server("time") == [local_file]
        assert config.get_server("time") == TIME
        assert config.source_of("time") == global_file
        assert global_file.read_bytes() == before

    def test_it_is_removed_from_every_file_that_has_it_if_that_is_wanted(
        self, global_file: Path, local_file: Path
    ) -> None:
        write(global_file, {"servers": {"time": TIME, "acer": ACER}, "mcpServers": {"time": TIME}})
        write(local_file, {"mcpServers": {"time": ACER}})
        config = MCPConfig()
        assert config.remove_server("time", everywhere=True) == [global_file, local_file]
        assert not config.server_exists("time")
        assert config.source_of("time") is None
        assert read(global_file) == {"servers": {"acer": ACER}, "mcpServers": {}}
        assert read(local_file) == {"mcpServers": {}}
        assert MCPConfig().get_servers() == {"acer": ACER}

    def test_a_file_without_it_is_not_written(self, global_file: Path, local_file: Path) -> None:
        write(global_file, {"mcpServers": {"acer": ACER}})
        write(local_file, {"mcpServers": {"time": TIME}})
        config = MCPConfig()
        before = global_file.read_bytes()
        config.remove_server("time")
        assert global_file.read_bytes() == before
        assert [file.name for file in global_file.parent.iterdir()] == [global_file.name]

    def test_one_that_the_file_does_not_have_changes_nothing_but_is_forgotten(
        self, config: MCPConfig, some_file: Path
    ) -> None:
        before = some_file.read_bytes()
        assert config.remove_server("nope") == []
        assert some_file.read_bytes() == before
        write(some_file, {"mcpServers": {"acer": ACER}})
        config.remove_server("time")
        assert not config.server_exists("time")
        assert read(some_file) == {"mcpServers": {"acer": ACER}}


class TestFailingSaves:
    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_a_full_disk_leaves_the_old_file_whole_and_nothing_else(
        self, config: MCPConfig, some_file: Path, step: str, mocker: Any
    ) -> None:
        before = some_file.read_bytes()
        mocker.patch.object(os, step, side_effect=OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(ConfigError, match=f"{some_file}: cannot be saved: No space left on device"):
            config.add_server("acer", ACER)
        assert some_file.read_bytes() == before
        assert [file.name for file in some_file.parent.iterdir() if not file.name.endswith(".lock")] == [some_file.name]
        assert not config.server_exists("acer")

    def test_a_folder_that_cannot_be_synchronised_is_no_failure(self, config: MCPConfig, mocker: Any) -> None:
        refused = []

        def files_only(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                refused.append(descriptor)
                raise OSError(errno.EINVAL, "Invalid argument")

        mocker.patch.object(os, "fsync", side_effect=files_only)
        config.add_server("acer", ACER)
        assert config.server_exists("acer")
        assert refused


class TestSeveralWriters:
    def test_what_another_program_added_since_the_load_is_kept(self, some_file: Path) -> None:
        one, other = MCPConfig(some_file, create=True), MCPConfig(some_file, create=True)
        one.add_server("time", TIME)
        other.add_server("acer", ACER)
        assert read(some_file) == {"mcpServers": {"time": TIME, "acer": ACER}}

    def test_what_another_program_removed_since_the_load_stays_removed(
        self, config: MCPConfig, some_file: Path
    ) -> None:
        MCPConfig(some_file).remove_server("time")
        config.add_server("acer", ACER)
        assert read(some_file) == {"mcpServers": {"acer": ACER}}

    def test_threads_lose_nothing_and_agree_with_the_file(self, some_file: Path) -> None:
        config = MCPConfig(some_file, create=True)

        def work(supervisor: int) -> None:
            for number in range(5):
                config.add_server("shared", {"command": f"{supervisor}-{number}"})
                config.add_server(f"{supervisor}-{number}", TIME)
                config.remove_server(f"{supervisor}-{number - 1}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert config.get_servers() == MCPConfig(some_file).get_servers()
        assert config.get_servers().keys() == {"shared", "0-4", "1-4", "2-4", "3-4"}


class TestBrokenEntries:
    """Entries that cannot be used, in a file that can."""

    BROKEN: ClassVar = {"text": "uvx x", "null": None, "empty": {}, "yes": {"command": "x", "disabled": "yes"}}

    @pytest.fixture
    def config(self, some_file: Path) -> MCPConfig:
        return MCPConfig(write(some_file, {"mcpServers": {**self.BROKEN, "time": TIME}}))

    def test_they_do_not_hide_the_others(self, config: MCPConfig, some_file: Path) -> None:
        assert config.get_servers() == {"time": TIME}
        assert config.get_entries() == {**self.BROKEN, "time": TIME}
        assert config.problems.keys() == self.BROKEN.keys()
        assert config.problems["yes"] == f"{some_file}: server 'yes': disabled: expected a boolean, got a string"
        assert config.problems["text"].endswith("expected a config dict with a 'command', got a string")

    def test_they_are_there_to_be_removed_or_replaced(self, config: MCPConfig, some_file: Path) -> None:
        assert config.server_exists("text")
        assert config.get_server("text") == {}
        assert config.source_of("text") == some_file
        config.remove_server("text")
        config.remove_server("null")
        config.add_server("empty", ACER)
        assert read(some_file)["mcpServers"] == {"empty": ACER, "yes": self.BROKEN["yes"], "time": TIME}
        assert config.problems.keys() == {"yes"}

    def test_a_local_one_hides_the_global_one_of_its_name_alone(self, global_file: Path, local_file: Path) -> None:
        # Using the global one instead would undo what the local one was to forbid.
        write(global_file, {"mcpServers": {"time": TIME, "acer": ACER}})
        write(local_file, {"mcpServers": {"time": "x"}})
        config = MCPConfig()
        assert config.get_servers() == {"acer": ACER}
        assert config.problems.keys() == {"time"}

    def test_they_are_errors_if_that_is_wanted(self, config: MCPConfig, some_file: Path) -> None:
        with pytest.raises(ConfigError) as refusal:
            MCPConfig(some_file, strict=True)
        assert all(f"server {name!r}" in str(refusal.value) for name in self.BROKEN)


class TestMisspeltKeys:
    @pytest.mark.parametrize("key", ["disabledTool", "allowedTools", "pinTool", "sandBox", "trusted"])
    def test_one_that_would_limit_a_server_makes_its_entry_unusable(self, some_file: Path, key: str) -> None:
        write(some_file, {"mcpServers": {"time": {**TIME, key: ["x"]}, "acer": ACER}})
        config = MCPConfig(some_file)
        assert config.get_servers() == {"acer": ACER}
        assert f"the key '{key}' means nothing here" in config.problems["time"]

    def test_any_other_is_a_warning(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"mcpServers": {"time": {**TIME, "timout": 5}}, "mcpServer": {}}))
        assert config.server_exists("time")
        assert config.problems == {}
        assert config.warnings == [
            f"{some_file}: the key 'mcpServer' means nothing here; did you mean 'mcpServers'?",
            f"{some_file}: server 'time': the key 'timout' means nothing here; did you mean 'timeout'?",
        ]

    def test_keys_of_other_programs_are_none(self, some_file: Path) -> None:
        document = {"$schema": "x", "theme": {"dark": True}, "inputs": {}, "mcpServers": {"time": TIME}}
        assert MCPConfig(write(some_file, document)).warnings == []

    @pytest.mark.parametrize("document", [{"mcpServers": {"time": {**TIME, "timout": 5}}}, {"mcpServer": {}}])
    def test_strictly_each_is_an_error(self, some_file: Path, document: Any) -> None:
        with pytest.raises(ConfigError, match=f"{some_file}: .*means nothing here; did you mean"):
            MCPConfig(write(some_file, document), strict=True)

    def test_strictly_a_key_that_makes_an_entry_unusable_is_said_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            MCPConfig.in_memory({"time": {**TIME, "disabledTool": ["x"], "timout": 5}}, strict=True)
        assert str(caught.value).count("'disabledTool'") == 1
        assert "'timout'" in str(caught.value)

    def test_strictly_none_can_be_added_either(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {}), strict=True)
        with pytest.raises(ConfigError, match="server 'time': the key 'timout' means nothing here"):
            config.add_server("time", {**TIME, "timout": 5})
        assert read(some_file) == {}


class TestNamedFiles:
    def test_one_that_does_not_exist_starts_empty_and_is_made_by_the_first_save(
        self, some_file: Path, log_events: LogEvents
    ) -> None:
        config = MCPConfig(some_file)
        assert config.get_servers() == {}
        assert config.load_report["exists"] is False
        assert not some_file.parent.exists()
        (event,) = log_events("config_file_missing")
        assert event["file"] == str(some_file)
        assert "correct the path" in event["hint"]

        config.add_server("time", TIME)
        assert read(some_file) == {"mcpServers": {"time": TIME}}
        assert MCPConfig(some_file).get_servers() == {"time": TIME}

    def test_one_that_is_to_be_created_is_no_warning_and_makes_no_home_folder(
        self, some_file: Path, global_file: Path, log_events: LogEvents
    ) -> None:
        config = MCPConfig(some_file, create=True)
        config.add_server("time", TIME)
        assert read(some_file) == {"mcpServers": {"time": TIME}}
        assert log_events("config_file_missing") == []
        assert not global_file.parent.exists()

    def test_one_that_must_exist_is_an_error(self, some_file: Path) -> None:
        with pytest.raises(ConfigError, match=f"{some_file}: there is no such file; correct the path"):
            MCPConfig(some_file, create=False)
        assert not some_file.parent.exists()

    @pytest.mark.usefixtures("home")
    def test_the_global_one_need_not_exist(self) -> None:
        assert MCPConfig("~/.gaia/mcp_servers.json").get_servers() == {}

    def test_without_a_home_directory_the_error_is_the_same(self, some_file: Path, mocker: Any) -> None:
        mocker.patch.object(Path, "home", side_effect=RuntimeError)
        with pytest.raises(ConfigError, match="there is no such file"):
            MCPConfig(some_file, create=False)


class TestFilesWithoutTheSection:
    @pytest.mark.parametrize("entry", [TIME, {"url": "https://x.org/mcp"}])
    def test_a_bare_mapping_of_servers_is_an_error_that_says_where_they_belong(
        self, some_file: Path, entry: Any
    ) -> None:
        write(some_file, {"$schema": "x", "time": entry})
        key = "command" if "command" in entry else "url"
        expected = f'{some_file}: its servers do not count, .* write {{"mcpServers": {{"time": {{"{key}": …}}}}}}'
        with pytest.raises(ConfigError, match=expected):
            MCPConfig(some_file)

    def test_so_is_one_entry(self, some_file: Path) -> None:
        write(some_file, TIME)
        with pytest.raises(ConfigError, match=r'the entry of one server; write \{"mcpServers": \{"NAME": \{"command'):
            MCPConfig(some_file)

    def test_nothing_is_saved_beside_them(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {}))
        write(some_file, {"time": TIME})
        with pytest.raises(ConfigError, match="its servers do not count"):
            config.add_server("acer", ACER)
        assert read(some_file) == {"time": TIME}

    def test_any_other_content_is_a_warning(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"name": "app", "scripts": {"test": "x"}}))
        assert config.warnings == [f'{some_file}: it has no "mcpServers", and so no servers']

    @pytest.mark.parametrize("document", [{}, {"mcpServers": {}, "statusLine": TIME}, {"servers": {}}])
    def test_a_file_with_the_section_or_with_nothing_is_none(self, some_file: Path, document: Any) -> None:
        assert MCPConfig(write(some_file, document)).warnings == []


class TestDisabling:
    def test_only_disabled_is_changed_in_the_file_that_counts(self, some_file: Path) -> None:
        write(some_file, {"mcpServers": {"time": {**TIME, "note": 1}, "acer": ACER}, "other": True})
        config = MCPConfig(some_file)

        assert config.set_disabled("time", True)
        document = {"mcpServers": {"time": {**TIME, "note": 1, "disabled": True}, "acer": ACER}, "other": True}
        assert json.loads(some_file.read_text()) == document
        assert config.get_server("time")["disabled"] is True
        assert config.set_disabled("time", False)
        assert json.loads(some_file.read_text())["mcpServers"]["time"] == {**TIME, "note": 1}

    def test_what_another_process_has_changed_or_enabled_meanwhile_stays_but_is_disabled(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"mcpServers": {"time": {**TIME, "disabled": True}}}))
        write(some_file, {"mcpServers": {"time": {**TIME, "note": 2}}})

        assert config.set_disabled("time", True)
        assert read(some_file) == {"mcpServers": {"time": {**TIME, "note": 2, "disabled": True}}}

    def test_nothing_is_saved_if_it_is_so_already(self, config: MCPConfig, some_file: Path) -> None:
        some_file.unlink()

        assert not config.set_disabled("time", False)
        assert not some_file.exists()

    def test_in_memory_it_is_changed_there(self) -> None:
        config = MCPConfig.in_memory({"time": TIME})

        assert config.set_disabled("time", True)
        assert config.get_server("time") == {**TIME, "disabled": True}

    def test_a_value_that_is_no_boolean_is_replaced(self, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"mcpServers": {"time": {**TIME, "disabled": "yes"}}}))

        assert config.set_disabled("time", False)
        assert config.problems == {}

    @pytest.mark.parametrize(("entry", "reason"), [(None, "no such server"), (5, "not an object")])
    def test_what_is_no_server_is_an_error(self, entry: object, reason: str, some_file: Path) -> None:
        config = MCPConfig(write(some_file, {"mcpServers": {} if entry is None else {"time": entry}}))

        with pytest.raises(ConfigError, match=reason):
            config.set_disabled("time", True)


class TestLogOfSaves:
    @pytest.fixture
    def saves(self, caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
        caplog.set_level(logging.INFO, logger="gaia")
        return lambda: [record.event_fields | {"level": record.levelname} for record in caplog.records]  # type: ignore[attr-defined]

    def test_each_save_is_one_event_with_the_name_of_the_file(
        self, some_file: Path, saves: Callable[[], list[dict[str, Any]]]
    ) -> None:
        config = MCPConfig(some_file, create=True)
        config.add_server("time", TIME)
        config.add_server("time", ACER)
        config.remove_server("time")
        fields = {"event": "config_saved", "file": str(some_file), "server": "time", "level": "INFO"}
        assert saves() == [{**fields, "change": change} for change in ("added", "replaced", "removed")]

    def test_what_is_kept_in_memory_is_none(self, config: MCPConfig, saves: Callable[[], list[dict[str, Any]]]) -> None:
        config.add_server("time", TIME, save=False)
        config.remove_server("time")
        assert saves() == []

    def test_a_secret_that_is_saved_as_it_is_is_warned_of_without_its_value(
        self, some_file: Path, saves: Callable[[], list[dict[str, Any]]]
    ) -> None:
        env = {"DB_PASSWORD": "hunter2-hunter2", "API_TOKEN": "${API_TOKEN}", "TZ": "UTC"}
        MCPConfig(some_file, create=True).add_server("db", {"command": "x", "env": env})
        (save,) = saves()
        assert (save["level"], save["plain_secrets"]) == ("WARNING", ["env.DB_PASSWORD"])
        assert "hunter2" not in str(save)


class TestUnknownKeys:
    def test_they_are_reported_with_what_was_meant_once_per_file_and_server(
        self, some_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(some_file, {"mcpServers": {"time": {"comand": "uvx", "zzz": 1}, "acer": ACER, "b": {"zzz": 1}}})
        other_file = write(tmp_path / "other.json", {"mcpServers": {"b": {"zzz": 1}}})
        with caplog.at_level(logging.WARNING, logger="gaia"):
            for file in (some_file, some_file, other_file, some_file):
                MCPConfig(file)
        reported = [record.event_fields for record in caplog.records]  # type: ignore[attr-defined]
        assert reported[0] == {
            "event": "config_keys_unknown",
            "file": str(some_file),
            "server": "time",
            "keys": ["comand", "zzz"],
            "did_you_mean": {"comand": "command"},
        }
        places = [(fields["file"], fields["server"]) for fields in reported]
        assert places == [(str(some_file), "time"), (str(some_file), "b"), (str(other_file), "b")]
