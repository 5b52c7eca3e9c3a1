"""Where the files are found, and what is reported of them."""

from __future__ import annotations

import json
import os
import stat
import sys
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.config.config_files import read_project
from gaia.mcp.config.config_variables import expand, keep_variables, plain_secrets, secrets
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.config.trust import TrustStore
from gaia.mcp.errors import ConfigError
from gaia.mcp.transports.sandbox import Sandbox

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


def config(**entry: Any) -> ServerConfig:
    return ServerConfig.from_dict("time", {"command": "uvx", **entry})


ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "HOST": "example.com", "NESTED": "${TOKEN}"}


class TestExpand:
    def test_variables_in_paths_of_a_sandbox_are_expanded(self) -> None:
        entry = {"command": "uvx", "sandbox": {"read": ["${NOTES}/a"], "write": ["${DATA:-/srv}"], "memory": "64M"}}
        expanded = expand(ServerConfig.from_dict("x", entry), {"NOTES": "/notes"}).sandbox_settings
        assert expanded == Sandbox(read=["/notes/a"], write=["/srv"], memory="64M")
        with pytest.raises(ConfigError, match=r"sandbox\.read\[0\]: the environment variable NOTES is not set"):
            expand(ServerConfig.from_dict("x", entry), {})

    def test_variables_that_never_end_are_no_work(self) -> None:
        endless = "${A:-" * 100_000
        begin = time.thread_time()
        subject = expand(config(env={"A": endless, "B": "${A:-x}" + endless}), {})
        assert time.thread_time() - begin < 2, "each would be read to the end of the text"
        assert subject.env == {"A": endless, "B": "x" + endless}

    def test_variables_are_replaced_in_env_headers_url_and_args(self) -> None:
        subject = expand(
            config(
                args=["--token", "x${TOKEN}y${HOST}"],
                env={"A": "${TOKEN}"},
                url="https://${HOST}/mcp",
                headers={"Authorization": "Bearer ${TOKEN}"},
                type="stdio",
            ),
            ENVIRON,
        )
        assert subject.args == ["--token", "xs3cretyexample.com"]
        assert subject.env == {"A": "s3cret"}
        assert subject.url == "https://example.com/mcp"
        assert subject.headers == {"Authorization": "Bearer s3cret"}

    def test_nothing_else_is_replaced(self) -> None:
        subject = config(command="${TOKEN}", cwd="${TOKEN}", enabledTools=["${TOKEN}"], env={"${TOKEN}": ""})
        assert expand(subject, ENVIRON) == subject

    def test_the_original_is_not_changed(self) -> None:
        subject = config(args=["${TOKEN}"], env={"A": "${TOKEN}"})
        expand(subject, ENVIRON)
        assert (subject.args, subject.env) == (["${TOKEN}"], {"A": "${TOKEN}"})

    def test_absent_and_empty_stay_apart(self) -> None:
        assert expand(config(), {}).args is None
        assert expand(config(args=[], env={}), {}).args == []
        assert expand(config(args=[], env={}), {}).env == {}

    @pytest.mark.parametrize(
        ("text", "expanded"),
        [
            ("${TOKEN:-other}", "s3cret"),
            ("${MISSING:-other}", "other"),
            ("${EMPTY:-other}", "other"),
            ("${MISSING:-}", ""),
            ("${EMPTY}", ""),
            ("${MISSING:-a:-b $TOKEN}", "a:-b $TOKEN"),
            ("${MISSING:-\n}", "\n"),
            ("${NESTED}", "${TOKEN}"),
            ("$TOKEN $$ ${} ${1} ${a-b} ${input:key} $", "$TOKEN $$ ${} ${1} ${a-b} ${input:key} $"),
            ("${TOKEN", "${TOKEN"),
        ],
    )
    def test_only_the_two_forms_are_replaced(self, text: str, expanded: str) -> None:
        assert expand(config(args=[text]), ENVIRON).args == [expanded]

    @pytest.mark.parametrize(
        ("entry", "where"),
        [
            ({"args": ["ok", "${MISSING}"]}, r"args\[1\]"),
            ({"env": {"A": "${MISSING}"}}, "env.A"),
            ({"headers": {"X-Key": "${MISSING}"}}, "headers.X-Key"),
            ({"url": "${MISSING}", "type": "http"}, "url"),
        ],
    )
    def test_an_unset_variable_is_named_with_server_and_key(self, entry: dict[str, Any], where: str) -> None:
        with pytest.raises(
            ConfigError, match=rf"^server 'time': {where}: the environment variable MISSING is not set; .*:-"
        ):
            expand(config(**entry), ENVIRON)

    def test_a_login_is_sent_as_utf_8(self) -> None:
        auth = {"type": "client_credentials", "issuer": "https://a.example", "clientId": "a", "clientSecret": "${ODD}"}
        with pytest.raises(ConfigError, match=r"^server 'time': auth.clientSecret: not UTF-8; correct it, or the var"):
            expand(ServerConfig.from_dict("time", {"url": "https://a.example", "auth": auth}), {"ODD": "hunter\udcff"})

    def test_a_result_that_is_unusable_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"^server 'time': command: missing"):
            expand(ServerConfig.from_dict("time", {"url": "${EMPTY}"}), ENVIRON)


class TestSecrets:
    def test_values_of_env_count_if_long_or_named_like_a_secret(self) -> None:
        env = {"API_KEY": "abcd", "password": "hunter2", "MODE": "dark", "HOME_OF_IT": "/srv/long/path"}
        assert secrets(config(env=env)) == ["abcd", "hunter2", "/srv/long/path"]

    def test_every_header_counts_with_and_without_its_scheme(self) -> None:
        subject = config(headers={"Authorization": "Bearer abcdef", "X-Mode": "dark", "X-Version": "1"})
        assert secrets(subject) == ["Bearer abcdef", "abcdef", "dark"]

    def test_a_value_is_named_once(self) -> None:
        assert secrets(config(env={"A_KEY": "same-value"}, headers={"X": "same-value"})) == ["same-value"]

    def test_without_env_and_headers_there_are_none(self) -> None:
        assert secrets(config()) == []

    def test_no_value_is_shown_in_a_repr(self) -> None:
        subject = config(
            args=["--token=hunter2"],
            env={"TOKEN": "hunter2"},
            headers={"Authorization": "Bearer hunter2"},
            url="https://hunter2@example.com",
            type="stdio",
        )
        assert repr(subject) == (
            "ServerConfig(name='time', transport='stdio', command='uvx', env=['TOKEN'], headers=['Authorization'])"
        )
        assert "hunter2" not in repr(subject.__rich_repr__())


class TestKeepingVariables:
    @pytest.mark.parametrize(
        ("entry", "before", "kept"),
        [
            ("v", "${A}", "${A}"),
            ("other", "${A}", "other"),
            ("x-v-y", "x-${A}-y", "x-${A}-y"),
            ("d", "${B:-d}", "${B:-d}"),
            ({"a": "v", "b": "v"}, {"a": "${A}"}, {"a": "${A}", "b": "v"}),
            (["v", 1, "v"], ["${A}", 1, "w"], ["${A}", 1, "v"]),
            (["v"], ["${A}", "more"], ["${A}"]),
            (["-x", "v", ""], ["${A}", "${B}"], ["-x", "${A}", ""]),
            (["v", 1, {"a": 2}], ["${A}"], ["${A}", 1, {"a": 2}]),
            ({"a": "v"}, None, {"a": "v"}),
            ({"a": "v"}, "x", {"a": "v"}),
            (True, "${A}", True),
        ],
    )
    def test_a_value_is_written_as_before_if_it_is_what_the_variables_stand_for(
        self, entry: Any, before: Any, kept: Any
    ) -> None:
        assert keep_variables(entry, before, {"A": "v"}) == kept


def test_secrets_that_are_written_out_are_found_by_their_names() -> None:
    env = {"API_KEY": "abc", "TZ": "UTC", "TOKEN": "${TOKEN}", "PASSWORD": ""}
    assert plain_secrets({"env": env, "headers": {"Authorization": "Bearer x"}}) == [
        "env.API_KEY",
        "headers.Authorization",
    ]
    assert plain_secrets({"env": "no object"}) == []
