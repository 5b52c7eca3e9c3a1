"""One server's JSON: what is accepted, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.config.entry_errors import limits, similar_key
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig, remarks_on_keys, require_servers, unknown_keys
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.context import RecyclingLimits
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.sandbox import Sandbox
from gaia.testing import FakeServer


def config(**entry: Any) -> ServerConfig:
    return ServerConfig.from_dict("time", {"command": "uvx", **entry})


def complaint(entry: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        ServerConfig.from_dict("time", entry)
    return str(refusal.value)


class TestFromDict:
    def test_a_server_of_this_program_is_its_own_entry(self) -> None:
        server = FakeServer("calc")
        assert ServerConfig.from_dict("calc", server).in_process is server

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
            "lazy": True,
            "idleStop": 60,
            "instances": "per-client",
            "maxInstances": 5,
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
            lazy=True,
            idle_stop=60,
            instances="per-client",
            max_instances=5,
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

    def test_limits_for_recycling_are_none_unless_they_are_given(self) -> None:
        assert config().recycling_limits() == RecyclingLimits()
        limited = config(maxLifetime=3600, maxCalls=500, maxMemory="2G").recycling_limits()
        assert limited == RecyclingLimits(max_lifetime=3600.0, max_calls=500, max_memory=2 * 1024**3)
        assert config(maxMemory=64 * 1024**2).recycling_limits().max_memory == 64 * 1024**2
        assert (config().drain_timeout, config(drainTimeout=5).drain_timeout) == (30.0, 5.0)
        assert (config().start_timeout, config(startTimeout=5).start_timeout) == (None, 5.0)

    def test_a_server_that_need_not_always_run_is_stopped_after_five_minutes(self) -> None:
        assert config().idle_seconds is None
        assert config(idleStop=7).idle_seconds == 7.0
        assert config(lazy=True).idle_seconds == 300.0
        assert config(lazy=True, idleStop=7).idle_seconds == 7.0
        assert config(instances="per-session").idle_seconds == 300.0
        assert (config().instances, config().max_instances) == ("shared", 100)

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


@pytest.mark.parametrize(
    ("entry", "settings"),
    [({}, None), ({"sandbox": False}, None), ({"sandbox": True}, Sandbox())],
    ids=["nothing said", "none", "the default one"],
)
def test_a_sandbox_is_made_if_it_is_asked_for(entry: dict[str, Any], settings: Sandbox | None) -> None:
    assert config(**entry).sandbox_settings == settings


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
            ({"maxLifetime": 0}, "maxLifetime: must be a number of seconds above 0 (and at most a year), got 0.0"),
            ({"drainTimeout": 0}, "drainTimeout: must be a number of seconds above 0 (and at most a year), got 0.0"),
            ({"startTimeout": 0}, "startTimeout: must be a number of seconds above 0 (and at most a year), got 0.0"),
            ({"startTimeout": "long"}, "startTimeout: expected a number or null, got a string"),
            ({"maxCalls": 0}, "maxCalls: must be a whole number from 1 upwards, got 0"),
            ({"maxCalls": "many"}, "maxCalls: expected a number or null, got a string"),
            ({"maxMemory": "half"}, "maxMemory: expected bytes, or a size such as \"512M\", got 'half'"),
            ({"maxMemory": 512}, "maxMemory: must be at least 16M, got 512"),
            (
                {"command": None, "url": "https://x", "maxMemory": "1G"},
                "maxMemory: only for a server with a command; this one has a url",
            ),
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
            ({"sandbox": {"wirte": []}}, "sandbox: the key 'wirte' means nothing here; did you mean 'write'?"),
            (
                {"sandbox": {"colour": []}},
                (
                    "sandbox: the key 'colour' means nothing here; "
                    "expected some of read, write, network, memory, processes, cpuSeconds"
                ),
            ),
            (
                {"command": None, "url": "https://x", "sandbox": True},
                "sandbox: only a server with a command can be started in one; this one has a url",
            ),
            (
                {"command": None, "url": "https://x", "standby": True},
                "standby: only a server with a command can have one; this one has a url",
            ),
            ({"restart": {"maxRestarts": "5"}}, "restart.maxRestarts: expected a number, got a string"),
            (
                {"standby": True, "lazy": True},
                'standby: it is for a server that always runs; remove it, or "lazy", "idleStop" and "instances"',
            ),
            ({"instances": "each"}, "instances: expected one of shared, per-session, per-client, got 'each'"),
            ({"maxInstances": 0}, "maxInstances: must be 1 or more, got 0"),
            ({"idleStop": 0}, "idleStop: must be a number of seconds above 0 (and at most a year), got 0.0"),
            (
                {"standby": True, "restart": {"restart": "never"}},
                'standby: it would never take over, because restart.restart is "never"; remove either',
            ),
            (
                {"restart": {"initialDelay": 0}},
                "restart.initialDelay: must be a number of seconds above 0 (and at most a year), got 0.0",
            ),
            ({"captureContent": "all"}, "captureContent: expected one of off, redacted, full, got 'all'"),
            (
                {"captureContentTools": {"a": "off", "b*": "some"}},
                "captureContentTools.b*: expected one of off, redacted, full, got 'some'",
            ),
            ({"captureContentTools": {"a": 1}}, "captureContentTools.a: expected a string, got a number"),
            *(
                (entry, f"half of a surrogate pair in {place}; write the whole character, or remove it")
                for entry, place in (
                    ({"args": ["a", "\ud800"]}, "args[1]"),
                    ({"env": {"A": "\ud800"}}, "env.A"),
                    ({"\udcff": 1}, r"\u{dcff}"),
                    ({"type": "\udcff"}, "type"),
                )
            ),
        ],
    )
    def test_a_wrong_value_is_named_with_its_place(self, entry: dict[str, Any], said: str) -> None:
        assert complaint({"command": "uvx", **entry}) == f"server 'time': {said}"

    @pytest.mark.parametrize("entry", [{"env": {"TOKEN": ["hunter2"]}}, {"headers": {"Authorization": {"hunter2": 1}}}])
    def test_a_complaint_does_not_repeat_a_secret(self, entry: dict[str, Any]) -> None:
        assert "hunter2" not in complaint({"command": "uvx", **entry})


json_texts = st.text(max_size=5) | st.sampled_from(["\ud800", "a\udcff"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(ServerConfig.__struct_encode_fields__)) | json_texts, json_values))
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
            # An entry does not name itself.
            ("name", None),
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


KNOWN = [key for key in ServerConfig.__struct_encode_fields__ if key != "name"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *((key, "disabledTools") for key in ("disabledTool", "disabled_tools", "deniedTools", "denyTools", "deny")),
        *(
            (key, "disabledTools")
            for key in ("excludeTools", "disallowedTools", "blockedTools", "blacklist", "toolsDeny")
        ),
        *(
            (key, "enabledTools")
            for key in ("enabledTool", "allowedTools", "allow", "includeTools", "tools", "whitelist")
        ),
        *((key, "enabledTools") for key in ("toolFilter", "allowlist", "only_tools", "permittedTools")),
        *((key, "pinTools") for key in ("pinTool", "pin_tools", "pin", "pinnedTools", "pinTols")),
        *((key, "sandbox") for key in ("sandBox", "sanbox", "sandboxed", "sandbox_mode")),
        *((key, "disabled") for key in ("disable", "disabeld", "enabled", "isActive")),
        *((key, "captureContent") for key in ("capture_content", "captureContents")),
        *((key, None) for key in ("trust", "trusted", "trustLocal")),
    ],
)
def test_a_key_that_was_to_limit_a_server_is_an_error(key: str, meant: str | None) -> None:
    similar = similar_key(key, KNOWN)
    assert similar == meant
    assert limits(key, similar, value=False)
    with pytest.raises(ConfigError, match=f"server 'x': the key '{key}' means nothing here"):
        ServerConfig.from_dict("x", {"command": "x", key: False})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *(("timout", "timeout"), ("comand", "command"), ("Args", "args"), ("health_interval", "healthInterval")),
        *(("inheritEnvironment", "inheritEnv"), ("autoApprove", None), ("alwaysAllow", None), ("description", None)),
        *(("envFile", None), ("pingInterval", None), ("zzz", None), ("", None), ("größe", None)),
    ],
)
def test_any_other_key_is_left_aside(key: str, meant: str | None) -> None:
    similar = similar_key(key, KNOWN)
    if meant is not None:
        assert similar == meant
    assert not limits(key, similar, value=False)
    assert ServerConfig.from_dict("x", {"command": "x", key: False}).command == "x"


def test_switching_a_server_on_limits_nothing() -> None:
    assert not limits("enabled", "disabled", value=True)
    assert limits("enabled", "disabled", value=False)


def test_a_key_beyond_all_measure_resembles_none() -> None:
    assert similar_key("sandbox" * 100_000, KNOWN) is None


def configured(**placement: object) -> ServerConfig:
    return ServerConfig.from_dict("it", {"command": "server", "placement": placement})


class TestKeys:
    def test_all_of_them(self) -> None:
        placement = configured(
            engine="ray",
            resources={"browser": 1},
            numCpus=0.5,
            memory="2G",
            strategy="spread",
            runtimeEnv={"pip": ["playwright"]},
            address="head:6379",
        ).placement
        assert placement == Placement(
            resources={"browser": 1},
            num_cpus=0.5,
            memory="2G",
            strategy="spread",
            runtime_env={"pip": ["playwright"]},
            address="head:6379",
        )

    def test_those_of_a_shared_server(self) -> None:
        placement = configured(lifetime="detached", name="team-browser").placement
        assert placement == Placement(lifetime="detached", name="team-browser")

    @pytest.mark.parametrize(
        ("keys", "problem"),
        [
            ({"name": "team-browser"}, "name"),
            ({"engine": "slurm"}, "placement.engine"),
            ({"engine": "process", "runtimeEnv": {}}, 'runtimeEnv: means nothing for "engine": "process"; remove it'),
            ({"engine": "ssh", "host": "a", "resources": {"gpu": 1}}, "placement.resources: means nothing"),
            ({"engine": "ssh"}, 'placement.host: missing; "engine": "ssh" needs it'),
            ({"engine": "ssh", "host": "-oProxyCommand=x"}, "placement.host: must not begin with -"),
            ({"engine": "kubernetes"}, "placement.image: missing"),
            ({"strategy": "random"}, "placement.strategy"),
            (
                {"resource": {"browser": 1}},
                "placement: the key 'resource' means nothing here; did you mean 'resources'?",
            ),
            ({"colour": 1}, "expected some of engine, resources, numCpus, memory"),
            ({"replicas": {"min": 1}}, 'placement.replicas: moved: give "replicas": N and "stateless": true beside'),
            ({"stateless": True}, "placement.stateless: moved"),
            ({"maxPending": 8}, "placement.maxPending: moved"),
            ({"resources": {"browser": -1}}, "browser: expected an amount from 0 upwards"),
            ({"resources": {"CPU": 1}}, 'give it as "numCpus"'),
            ({"resources": {"memory": 1}}, 'give it as "memory"'),
            ({"numCpus": -1}, "numCpus: expected an amount"),
            ({"memory": "2 GB of it"}, "memory: expected bytes, or a size"),
            ({"address": " "}, "address: is empty"),
        ],
    )
    def test_what_is_wrong_is_named(self, keys: dict[str, object], problem: str) -> None:
        with pytest.raises(ConfigError) as raised:
            configured(**keys)
        assert problem in raised.value.message
        assert "'it'" in raised.value.message

    @pytest.mark.parametrize(
        "keys", [{"standby": True}, {"replicas": 2, "stateless": True}, {"maxCalls": 5}, {"maxMemory": "1G"}]
    )
    def test_a_shared_server_has_one_process(self, keys: dict[str, object]) -> None:
        with pytest.raises(ConfigError, match='programs share the one process of a server with "lifetime": "detached"'):
            ServerConfig.from_dict("it", {"command": "server", "placement": {"lifetime": "detached"}, **keys})

    def test_only_a_command_can_be_placed(self) -> None:
        with pytest.raises(ConfigError, match="placement: only for a server with a command"):
            ServerConfig.from_dict("it", {"url": "https://example.com/mcp", "placement": {}})


class TestDemand:
    def test_amounts_of_zero_are_left_out(self) -> None:
        assert Placement().demand == {}

    def test_names_are_those_of_the_engine(self) -> None:
        assert Placement(num_cpus=1, memory="1K", resources={"gpu": 2}).demand == {"CPU": 1, "memory": 1024, "gpu": 2}
