"""One server's JSON: what is accepted, what is said about the rest, and what `${VAR}` becomes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client.server_config import (
    ServerConfig,
    expand,
    keep_variables,
    plain_secrets,
    remarks_on_keys,
    require_servers,
    secrets,
    unknown_keys,
)
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.transports.sandbox import Sandbox
from gaia.mcp.errors import ConfigError


def config(**entry: Any) -> ServerConfig:
    return ServerConfig.from_dict("time", {"command": "uvx", **entry})


def complaint(entry: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        ServerConfig.from_dict("time", entry)
    return str(refusal.value)


class TestFromDict:
    def test_a_command_is_enough(self) -> None:
        assert config() == ServerConfig(name="time", command="uvx")

    def test_defaults_are_the_documented_ones(self) -> None:
        subject = config()
        assert (subject.args, subject.env, subject.cwd, subject.url, subject.headers) == (None,) * 5
        assert (subject.timeout, subject.health_interval, subject.health_timeout) == (30.0, 30.0, 10.0)
        assert (subject.disabled, subject.inherit_env) == (False, False)
        assert (subject.enabled_tools, subject.disabled_tools) == (None, [])
        assert (subject.max_pending, subject.max_message_bytes) == (1024, 256 * 1024 * 1024)
        assert subject.restart == RestartPolicy()

    def test_every_documented_key_is_read(self) -> None:
        entry = {
            "command": "uvx",
            "args": ["mcp-server-time"],
            "env": {"TZ": "UTC"},
            "cwd": "/srv",
            "type": "stdio",
            "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer x"},
            "timeout": 5,
            "disabled": True,
            "enabledTools": ["get_*"],
            "disabledTools": ["delete_*"],
            "restart": {"restart": "always", "initialDelay": 1, "maxRestarts": 2},
            "inheritEnv": True,
            "healthInterval": 7,
            "healthTimeout": 3,
            "maxPending": 9,
            "maxMessageBytes": 1000,
        }
        assert unknown_keys(entry) == {}
        assert ServerConfig.from_dict("time", entry) == ServerConfig(
            name="time",
            command="uvx",
            args=["mcp-server-time"],
            env={"TZ": "UTC"},
            cwd="/srv",
            type="stdio",
            url="https://example.com/mcp",
            headers={"Authorization": "Bearer x"},
            timeout=5,
            disabled=True,
            enabled_tools=["get_*"],
            disabled_tools=["delete_*"],
            restart=RestartPolicy(restart="always", initial_delay=1, max_restarts=2),
            inherit_env=True,
            health_interval=7,
            health_timeout=3,
            max_pending=9,
            max_message_bytes=1000,
        )

    def test_a_configuration_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            config().command = "other"  # type: ignore[misc]

    def test_limits_may_be_as_low_as_one(self) -> None:
        subject = config(maxPending=1, maxMessageBytes=1)
        assert (subject.max_pending, subject.max_message_bytes) == (1, 1)

    def test_unknown_keys_are_left_aside(self) -> None:
        assert config(autoApprove=["x"], name="mine") == config()

    @pytest.mark.parametrize(
        ("entry", "transport"),
        [
            ({"command": "uvx"}, "stdio"),
            ({"url": "https://x"}, "http"),
            ({"command": " ", "url": "https://x"}, "http"),
            ({"command": "uvx", "url": "https://x", "type": "http"}, "http"),
            ({"command": "uvx", "url": "https://x", "type": "stdio"}, "stdio"),
            ({"url": "https://x", "type": "streamable-http"}, "http"),
            ({"url": "https://x", "type": "sse"}, "sse"),
        ],
    )
    def test_the_transport_follows_from_type_command_and_url(self, entry: dict[str, Any], transport: str) -> None:
        assert ServerConfig.from_dict("x", entry).transport == transport


class TestSandbox:
    @pytest.mark.parametrize("value", [None, False])
    def test_there_is_none_unless_it_is_asked_for(self, value: object) -> None:
        entry = {"command": "uvx"} if value is None else {"command": "uvx", "sandbox": value}
        assert ServerConfig.from_dict("x", entry).sandbox_settings is None

    def test_true_is_the_default_one(self) -> None:
        assert ServerConfig.from_dict("x", {"command": "uvx", "sandbox": True}).sandbox_settings == Sandbox()

    def test_variables_in_its_paths_are_expanded(self) -> None:
        entry = {"command": "uvx", "sandbox": {"read": ["${NOTES}/a"], "write": ["${DATA:-/srv}"], "memory": "64M"}}
        expanded = expand(ServerConfig.from_dict("x", entry), {"NOTES": "/notes"}).sandbox_settings
        assert expanded == Sandbox(read=["/notes/a"], write=["/srv"], memory="64M")
        with pytest.raises(ConfigError, match=r"sandbox\.read\[0\]: the environment variable NOTES is not set"):
            expand(ServerConfig.from_dict("x", entry), {})


class TestComplaints:
    @pytest.mark.parametrize(
        ("entry", "got"),
        [("uvx", "a string"), (None, "null"), (["uvx"], "a list"), (5, "a number"), (True, "a boolean")],
    )
    def test_what_is_no_dictionary_is_refused(self, entry: object, got: str) -> None:
        assert complaint(entry) == f"server 'time': expected a config dict with a 'command', got {got}"

    @pytest.mark.parametrize(
        "entry",
        [{}, {"command": ""}, {"command": "  "}, {"command": None}, {"args": ["x"]}, {"url": ""}, {"type": "sse"}],
    )
    def test_a_server_needs_a_command_or_a_url(self, entry: dict[str, Any]) -> None:
        assert complaint(entry) == (
            "server 'time': command: missing; give the command that starts the server, or the url of a running one"
        )

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"command": "x", "type": "http"}, 'url: missing; a server of type "http" needs one'),
            ({"url": "x", "type": "stdio"}, 'command: missing; a server of type "stdio" needs one'),
            (
                {"command": "x", "url": "y"},
                'type: there is both a command and a url; remove one, or say "stdio" or "http" here',
            ),
        ],
    )
    def test_type_command_and_url_must_agree(self, entry: dict[str, Any], said: str) -> None:
        assert complaint(entry) == f"server 'time': {said}"

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"command": 5}, "command: expected a string or null, got a number"),
            ({"args": [1]}, "args[0]: expected a string, got a number"),
            ({"args": "x"}, "args: expected a list or null, got a string"),
            ({"env": {"A": "x", "B": 5, "C": 6}}, "env.B: expected a string, got a number"),
            ({"env": {"A": None}}, "env.A: expected a string, got null"),
            ({"env": {"A": {"b": "c"}}}, "env.A: expected a string, got an object"),
            ({"env": ["A=b"]}, "env: expected an object or null, got a list"),
            ({"env": {5: "x"}}, "env: the keys must be strings"),
            ({5: "x"}, "the keys must be strings"),
            ({"headers": {"X": True}}, "headers.X: expected a string, got a boolean"),
            ({"timeout": "30"}, "timeout: expected a number, got a string"),
            ({"timeout": True}, "timeout: expected a number, got a boolean"),
            ({"timeout": 0}, "timeout: must be a number of seconds above 0 (and at most a year), got 0.0"),
            ({"timeout": -1}, "timeout: must be a number of seconds above 0 (and at most a year), got -1.0"),
            ({"timeout": 10**400}, "timeout: number out of range"),
            (
                {"healthInterval": 0},
                "healthInterval: must be a number of seconds above 0 (and at most a year), got 0.0",
            ),
            ({"maxPending": 0}, "maxPending: must be 1 or more, got 0"),
            ({"maxPending": 1.5}, "maxPending: expected a whole number, got a number"),
            ({"maxMessageBytes": -5}, "maxMessageBytes: must be 1 or more, got -5"),
            ({"disabled": "yes"}, "disabled: expected a boolean, got a string"),
            ({"enabledTools": ["a", None]}, "enabledTools[1]: expected a string, got null"),
            ({"disabledTools": None}, "disabledTools: expected a list, got null"),
            ({"type": "websocket"}, "type: expected one of stdio, http, sse, streamable-http, got 'websocket'"),
            ({"restart": "never"}, "restart: expected an object, got a string"),
            ({"restart": {"restart": "no"}}, "restart.restart: expected one of always, on-failure, never, got 'no'"),
            ({"sandbox": "yes"}, "sandbox: expected a boolean or an object, got a string"),
            ({"sandbox": {"read": "x"}}, "sandbox.read: expected a list, got a string"),
            ({"sandbox": {"network": "no"}}, "sandbox.network: expected a boolean, got a string"),
            ({"sandbox": {"memory": "5X"}}, "sandbox.memory: expected bytes, or a size such as \"512M\", got '5X'"),
            ({"sandbox": {"cpuSeconds": 0}}, "sandbox.cpuSeconds: must be 1 or more, got 0"),
            ({"sandbox": {"cpuSeconds": 1.5}}, "sandbox.cpuSeconds: expected a whole number or null, got a number"),
            (
                {"sandbox": {"wirte": []}},
                (
                    "sandbox: the key 'wirte' means nothing here; "
                    "expected some of read, write, network, memory, processes, cpuSeconds"
                ),
            ),
            (
                {"command": None, "url": "https://x", "sandbox": True},
                "sandbox: only a server with a command can be started in one; this one has a url",
            ),
            ({"restart": {"maxRestarts": "5"}}, "restart.maxRestarts: expected a number, got a string"),
            (
                {"restart": {"initialDelay": 0}},
                "restart.initialDelay: must be a number of seconds above 0 (and at most a year), got 0.0",
            ),
        ],
    )
    def test_a_wrong_value_is_named_with_its_place(self, entry: dict[str, Any], said: str) -> None:
        assert complaint({"command": "uvx", **entry}) == f"server 'time': {said}"

    @pytest.mark.parametrize("entry", [{"env": {"TOKEN": ["hunter2"]}}, {"headers": {"Authorization": {"hunter2": 1}}}])
    def test_a_complaint_does_not_repeat_a_secret(self, entry: dict[str, Any]) -> None:
        assert "hunter2" not in complaint({"command": "uvx", **entry})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(ServerConfig.__struct_encode_fields__)) | st.text(), json_values))
def test_any_json_is_either_a_configuration_or_a_config_error(entry: dict[str, Any]) -> None:
    said = ""
    try:
        ServerConfig.from_dict("x", entry)
    except ConfigError as error:
        said = str(error)
    # A configuration always has one of the two; the validator's own wording never gets through.
    assert said.startswith("server 'x': ") or entry.get("command") or entry.get("url")
    assert " - at " not in said


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("comand", "command"),
            ("Args", "args"),
            ("enabled_tools", "enabledTools"),
            ("timeOut", "timeout"),
            ("header", "headers"),
            ("autoApprove", None),
        ],
    )
    def test_a_misspelt_key_comes_with_the_one_that_was_meant(self, key: str, meant: str | None) -> None:
        assert unknown_keys({"command": "uvx", key: 1}) == {key: meant}

    def test_keys_within_restart_are_looked_at_too(self) -> None:
        entry = {"restart": {"window": 5, "maxRestart": 3, "zzz": 1}, "zzz": 1}
        assert unknown_keys(entry) == {"zzz": None, "restart.maxRestart": "restart.maxRestarts", "restart.zzz": None}

    @pytest.mark.parametrize("entry", [{}, {"restart": None}, {"restart": "never"}])
    def test_a_malformed_restart_is_not_its_business(self, entry: dict[str, Any]) -> None:
        assert unknown_keys(entry) == {}

    def test_an_entry_does_not_name_itself(self) -> None:
        assert unknown_keys({"name": "time"}) == {"name": None}


ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "HOST": "example.com", "NESTED": "${TOKEN}"}


class TestExpand:
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


class TestCapturingContent:
    def test_it_is_left_to_the_environment(self) -> None:
        config = ServerConfig.from_dict("s", {"command": "c"})
        assert config.capture_content is None
        assert config.capture_content_tools == {}

    @pytest.mark.parametrize("mode", ["off", "redacted", "full"])
    def test_it_can_be_said_for_all_tools_and_for_some(self, mode: str) -> None:
        config = ServerConfig.from_dict(
            "s", {"command": "c", "captureContent": mode, "captureContentTools": {"read_*": mode}}
        )
        assert (config.capture_content, config.capture_content_tools) == (mode, {"read_*": mode})

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"captureContent": "all"}, "captureContent: expected one of off, redacted, full, got 'all'"),
            (
                {"captureContentTools": {"a": "off", "b*": "some"}},
                r"captureContentTools.b\*: expected one of off, redacted, full, got 'some'",
            ),
            ({"captureContentTools": {"a": 1}}, "captureContentTools.a: expected a string, got a number"),
        ],
    )
    def test_any_other_word_is_refused(self, entry: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            ServerConfig.from_dict("s", {"command": "c", **entry})


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


def test_remarks_name_the_key_that_was_meant() -> None:
    assert remarks_on_keys({"command": "x", "zzz": 1, "timout": 2}) == [
        "the key 'zzz' means nothing here",
        "the key 'timout' means nothing here; did you mean 'timeout'?",
    ]
    assert remarks_on_keys("no object") == []


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("servers.json", r"got str; the servers of a configuration file are MCPConfig\(path\)"),
        ([{"command": "uvx"}], "got list"),
        ({"command": "uvx", "args": ["x"]}, r"the entry of one server; give \{NAME: \{'command': …\}\}"),
        ({"url": "https://example.org/mcp"}, "the entry of one server"),
        ({"mcpServers": {"time": {"command": "uvx"}}}, "give what is in its 'mcpServers'"),
        ({"servers": {"time": {"command": "uvx"}}}, "give what is in its 'servers'"),
    ],
)
def test_what_is_no_mapping_of_servers_is_explained(servers: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        require_servers(servers)


@pytest.mark.parametrize("name", ["command", "url", "mcpServers", "servers"])
def test_a_server_may_have_any_name(name: str) -> None:
    require_servers({name: {"command": "uvx", "env": {"A": "b"}}})
    require_servers({})
