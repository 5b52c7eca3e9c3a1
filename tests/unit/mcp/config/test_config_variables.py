"""What ``${VAR}`` becomes, when a server is started and when its entry is saved."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gaia.mcp.config.config_variables import expand, keep_variables, plain_secrets, secrets
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.transports.sandbox import Sandbox


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
