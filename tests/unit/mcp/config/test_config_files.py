"""Where the files are found, and what is reported of them."""

from __future__ import annotations

import json
import os
import stat
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.config.config_files import read_project
from gaia.mcp.config.trust import TrustStore
from gaia.mcp.errors import ConfigError

NAME = "mcp_servers.json"
TIME = {"command": "uvx", "args": ["mcp-server-time"]}
NOTHING = {"path": None, "exists": False, "servers": []}


def write(file: Path, **servers: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@pytest.fixture
def global_file(home: Path) -> Path:
    return home / ".gaia" / NAME


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The main script of this process, in a folder that is not the working directory."""
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(folder / "agent.py")))  # type: ignore[arg-type]
    return folder / "agent.py"


class TestLocalFile:
    def test_without_one_in_the_working_directory_the_one_beside_the_script_counts(
        self, script: Path, global_file: Path
    ) -> None:
        file = write(script.with_name(NAME), time=TIME)
        config = MCPConfig()
        assert config.get_servers() == {"time": TIME}
        assert config.source_of("time") == config.config_file == file
        config.add_server("new", TIME)
        assert json.loads(file.read_text())["mcpServers"] == {"time": TIME, "new": TIME}
        assert not global_file.exists()

    def test_the_one_in_the_working_directory_comes_first(self, script: Path) -> None:
        write(script.with_name(NAME), time=TIME)
        file = write(Path.cwd() / NAME, acer=TIME)
        assert MCPConfig().get_servers() == {"acer": TIME}
        assert MCPConfig().config_file == file

    def test_a_link_to_the_script_is_followed_as_for_imports(
        self, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script.touch()
        (tmp_path / "link").symlink_to(script)
        write(script.with_name(NAME), time=TIME)
        monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "link"))
        assert MCPConfig().server_exists("time")

    @pytest.mark.parametrize("main", [SimpleNamespace(), SimpleNamespace(__file__=None), None])
    def test_an_interpreter_without_a_script_has_none(
        self, script: Path, monkeypatch: pytest.MonkeyPatch, main: Any
    ) -> None:
        write(script.with_name(NAME), time=TIME)
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert MCPConfig().get_servers() == {}

    @pytest.mark.parametrize("place", ["scripts", "purelib"])
    def test_a_program_that_is_installed_has_none(
        self, script: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        write(script.with_name(NAME), time=TIME)
        paths = sysconfig.get_paths() | {place: str(script.parent)}
        monkeypatch.setattr(sysconfig, "get_path", paths.__getitem__)
        assert MCPConfig().get_servers() == {}

    def test_a_script_beside_the_global_file_loads_that_once(
        self, script: Path, global_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(global_file, time=TIME)
        monkeypatch.setattr(sys.modules["__main__"], "__file__", str(global_file.with_name("agent.py")))
        config = MCPConfig()
        assert config.config_file == global_file
        assert config.load_report["local"]["exists"] is False

    def test_it_needs_trust_as_the_other_does(self, script: Path) -> None:
        file = write(script.with_name(NAME), time=TIME)
        config = MCPConfig(trust_local=False)
        assert config.get_servers() == {}
        assert config.untrusted is not None
        assert config.untrusted.path == file
        TrustStore().trust(read_project(file))
        assert MCPConfig(trust_local=False).server_exists("time")

    @pytest.mark.parametrize("trust_local", [False, True])
    def test_a_device_is_not_read(self, trust_local: bool) -> None:
        # /dev/zero would never end; a cloned project can have such a link.
        (Path.cwd() / NAME).symlink_to("/dev/null")

        with pytest.raises(ConfigError, match="not a regular file"):
            MCPConfig(trust_local=trust_local)
        with pytest.raises(ConfigError, match="not a regular file"):
            read_project(Path.cwd() / NAME)

    def test_a_link_of_another_user_does_not_choose_the_file(
        self, script: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = script.with_name(NAME)
        file.symlink_to(write(script.with_name("other.json"), time=TIME))
        given, fields = os.lstat(file), list(os.lstat(file))
        fields[stat.ST_UID] = os.geteuid() + 1
        lstat = os.lstat
        monkeypatch.setattr(
            os, "lstat", lambda path, **how: os.stat_result(fields) if str(path) == str(file) else lstat(path, **how)
        )

        assert stat.S_ISLNK(given.st_mode)
        with pytest.raises(ConfigError, match=f"{file} belongs to another user"):
            MCPConfig()

    def test_a_link_of_this_user_is_followed(self, script: Path) -> None:
        script.with_name(NAME).symlink_to(write(script.with_name("other.json"), time=TIME))

        assert MCPConfig().get_servers() == {"time": TIME}


class TestLoadReport:
    def test_of_two_files(self, global_file: Path, tmp_path: Path) -> None:
        write(global_file, a=TIME, b=TIME)
        local = write(tmp_path / NAME, b=TIME, c="unusable")
        assert MCPConfig().load_report == {
            "mode": "auto",
            "global": {"path": global_file, "exists": True, "servers": ["a", "b"]},
            "local": {"path": local, "exists": True, "servers": ["b", "c"]},
            "overrides": ["b"],
        }

    def test_without_files(self, global_file: Path, tmp_path: Path) -> None:
        assert MCPConfig().load_report == {
            "mode": "auto",
            "global": {"path": global_file, "exists": False, "servers": []},
            "local": {"path": tmp_path / NAME, "exists": False, "servers": []},
            "overrides": [],
        }

    def test_a_file_that_is_not_trusted_has_no_servers(self, tmp_path: Path) -> None:
        local = write(tmp_path / NAME, a=TIME)
        assert MCPConfig(trust_local=False).load_report["local"] == {"path": local, "exists": True, "servers": []}

    def test_of_a_named_file(self, tmp_path: Path) -> None:
        file = write(tmp_path / "named.json", a=TIME)
        assert MCPConfig(file).load_report == {
            "mode": "explicit",
            "global": NOTHING,
            "local": NOTHING,
            "overrides": [],
            "path": file,
            "exists": True,
            "servers": ["a"],
        }

    def test_of_a_configuration_in_memory(self) -> None:
        report = MCPConfig.in_memory({"a": TIME}).load_report
        assert report == {"mode": "memory", "global": NOTHING, "local": NOTHING, "overrides": []}


def test_an_entry_that_is_no_object_is_shown_to_who_trusts_the_file(tmp_path: Path) -> None:
    project = read_project(write(tmp_path / NAME, a="x", b=TIME))
    assert project.problem is None
    assert project.servers == {"a": "starts nothing: it is not an object", "b": "runs: uvx mcp-server-time"}
