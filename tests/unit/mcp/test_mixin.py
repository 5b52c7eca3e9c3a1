from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.agents.base import Agent, MCPAgent
from gaia.agents.base.console import SilentConsole
from gaia.agents.base.tools import _TOOL_REGISTRY, get_tool_display_name
from gaia.mcp import MCPClientMixin
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client import MCPTool
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.events import (
    Event,
    EventsDropped,
    Restarted,
    ServerLog,
    ServerState,
    StateChanged,
    ToolsChanged,
)
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter
from tests.silent_agent import SilentAgent
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("empty_registry")

CONFIG = {"command": "npx", "args": ["-y", "server"]}
SERVERS = {"time": CONFIG}

LogEvents = Callable[[str], list[dict[str, Any]]]
Closing = Callable[["AgentFirst"], "AgentFirst"]


@pytest.fixture
def manager(mocker: Any) -> Mock:
    """The manager that agents of the test get, without servers."""
    manager = mocker.patch("gaia.mcp.mixin.MCPClientManager").return_value
    manager.list_servers.return_value = []
    manager.get_client.return_value = None
    manager.config.get_servers.return_value = {}
    manager.config.source_of.return_value = None
    manager.config.config_file = None
    manager.status.return_value = []
    return manager  # type: ignore[no-any-return]


@pytest.fixture
def manager_class(manager: Mock) -> Mock:
    import gaia.mcp.mixin

    return gaia.mcp.mixin.MCPClientManager  # type: ignore[return-value]


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Closes the agents that it is given at the end of the test."""
    with contextlib.ExitStack() as stack:

        def close_later(agent: AgentFirst) -> AgentFirst:
            stack.callback(agent.close_mcp)
            return agent

        yield close_later


def a_tool(name: str, **properties: Any) -> MCPTool:
    return MCPTool(name, f"Does {name}", {"type": "object", "properties": properties, "required": list(properties)})


def a_client(name: str, *tools: str, answer: Any = "answer") -> Mock:
    client = Mock()
    client.name = name
    client.state = ServerState.READY
    client.list_tools.return_value = [a_tool(tool) for tool in tools]
    client.create_tool_wrapper.side_effect = lambda tool: Mock(return_value=answer, __name__=tool.name)
    return client


def serve(manager: Mock, *clients: Mock) -> None:
    """Make `clients` the connected servers of the manager."""
    table = {client.name: client for client in clients}
    manager.list_servers.return_value = list(table)
    manager.get_client.side_effect = table.get
    manager.config.get_servers.return_value = dict.fromkeys(table, CONFIG)


class Host(MCPClientMixin):
    """A class that is no agent."""

    def __init__(self, debug: bool = False, auto_load_config: bool = False) -> None:
        self.debug = debug
        super().__init__(auto_load_config=auto_load_config)


class AgentFirst(SilentAgent, MCPClientMixin): ...


class MixinFirst(MCPClientMixin, SilentAgent): ...


@pytest.fixture
def client(manager: Mock) -> Mock:
    """What the manager connects to next."""
    client = a_client("time", "now", "zones")
    manager.add_server.return_value = client
    return client


@pytest.fixture
def agent(manager: Mock, client: Mock) -> AgentFirst:
    """It uses that server."""
    agent = AgentFirst(auto_load_config=False)
    agent.connect_mcp_server("time", CONFIG)
    serve(manager, client)
    return agent


class TestConnect:
    def test_it_adds_the_server_and_registers_its_tools(self, manager: Mock) -> None:
        manager.add_server.return_value = a_client("time", "now")
        host = Host()
        assert host.connect_mcp_server("time", CONFIG) is True
        manager.add_server.assert_called_once_with("time", CONFIG)
        entry = _TOOL_REGISTRY["mcp_time_now"]
        assert entry["name"] == "mcp_time_now"
        assert entry["description"] == "[MCP:time] Does now"
        assert (entry["_mcp_server"], entry["_mcp_tool_name"], entry["atomic"]) == ("time", "now", True)
        assert get_tool_display_name("mcp_time_now") == "now (time)"

    def test_a_client_without_tools_or_name_is_connected_too(self, manager: Mock) -> None:
        manager.add_server.return_value = Mock(list_tools=Mock(return_value=[]))
        assert Host().connect_mcp_server("test", CONFIG) is True

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ("echo test", "config dict"),
            (None, "config dict"),
            ({}, "command"),
            ({"args": ["-y"]}, "command"),
            ({"command": ""}, "command"),
        ],
    )
    def test_a_config_that_cannot_be_one_is_a_mistake_of_the_caller(
        self, manager: Mock, config: Any, message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            Host().connect_mcp_server("test", config)
        manager.add_server.assert_not_called()

    @pytest.mark.parametrize("error", [RuntimeError("no such file"), ValueError("exists"), OSError("no such file")])
    def test_a_failure_is_false_and_its_reason_is_printed(self, manager: Mock, error: Exception) -> None:
        manager.add_server.side_effect = error
        host = Host()
        host.console = Mock()  # type: ignore[attr-defined]
        assert host.connect_mcp_server("time", CONFIG) is False
        host.console.print_error.assert_called_once_with(f"MCP server time failed to connect: {error}")  # type: ignore[attr-defined]

    def test_a_server_that_runs_already_with_this_configuration_is_connected(self, manager: Mock) -> None:
        serve(manager, a_client("time", "now"))
        manager.config.get_server.return_value = CONFIG
        assert Host().connect_mcp_server("time", dict(CONFIG)) is True
        manager.add_server.assert_not_called()
        assert list(_TOOL_REGISTRY) == ["mcp_time_now"]

    def test_one_that_is_being_restarted_is_waited_for(self, manager: Mock) -> None:
        client = a_client("time", "now")
        client.connect.return_value, client.is_connected.return_value = True, False

        def list_tools(refresh: bool = False) -> list[MCPTool]:
            if refresh:
                client.is_connected.return_value = True
            return [a_tool("now")]

        client.list_tools.side_effect = list_tools
        serve(manager, client)
        manager.config.get_server.return_value = CONFIG
        assert Host().connect_mcp_server("time", dict(CONFIG)) is True
        assert list(_TOOL_REGISTRY) == ["mcp_time_now"]

    def test_a_server_that_runs_with_another_configuration_is_for_the_manager_to_refuse(self, manager: Mock) -> None:
        serve(manager, a_client("time", "now"))
        manager.config.get_server.return_value = CONFIG
        manager.add_server.side_effect = ValueError("exists")
        assert Host().connect_mcp_server("time", {"command": "other"}) is False

    def test_the_tools_go_to_the_prompt_and_to_the_agents_own_registry_if_it_has_one(self, manager: Mock) -> None:
        manager.add_server.return_value = a_client("time", "now")
        agent = AgentFirst()
        agent._tools_registry = {}
        assert "mcp_time_now" not in agent.system_prompt
        agent.connect_mcp_server("time", CONFIG)
        assert "- mcp_time_now" in agent.system_prompt
        assert (list(agent._tools_registry), list(_TOOL_REGISTRY)) == (["mcp_time_now"], [])


def test_a_manager_of_an_application_s_tests_may_be_a_plain_mock(mocker: Any) -> None:
    plain = mocker.patch("gaia.mcp.mixin.MCPClientManager").return_value
    plain.add_server.return_value = a_client("time", "now")
    host = Host()
    assert host.connect_mcp_server("time", {"command": "x"}) is True
    assert _TOOL_REGISTRY["mcp_time_now"]["_mcp_server"] == "time"
    assert host.list_mcp_servers() is plain.list_servers.return_value


class TestDisconnect:
    def test_it_removes_exactly_the_servers_tools(self, manager: Mock) -> None:
        native = _TOOL_REGISTRY["mcp_a_native"] = {"name": "mcp_a_native"}
        one, two = a_client("one", "read"), a_client("two", "read")
        manager.add_server.side_effect = [one, two]
        host = Host()
        host.connect_mcp_server("one", CONFIG)
        host.connect_mcp_server("two", CONFIG)
        serve(manager, one, two)
        host.disconnect_mcp_server("one")
        assert list(_TOOL_REGISTRY) == ["mcp_a_native", "mcp_two_read"]
        assert _TOOL_REGISTRY["mcp_a_native"] is native
        manager.remove_server.assert_called_once_with("one")

    def test_an_unknown_server_is_no_error(self, manager: Mock) -> None:
        Host().disconnect_mcp_server("nobody")
        manager.remove_server.assert_not_called()

    def test_a_server_that_could_not_be_connected_is_removed(self, manager: Mock) -> None:
        manager.config.server_exists.return_value = True
        Host().disconnect_mcp_server("down")
        manager.remove_server.assert_called_once_with("down")

    def test_the_tools_go_even_if_the_configuration_cannot_be_saved(self, manager: Mock, agent: AgentFirst) -> None:
        manager.remove_server.side_effect = ConfigError("disk full")
        with pytest.raises(ConfigError):
            agent.disconnect_mcp_server("time")
        assert "mcp_time_now" not in agent.system_prompt
        assert list(_TOOL_REGISTRY) == []

    def test_the_tools_of_another_server_that_has_taken_the_name_stay(self, manager: Mock, agent: AgentFirst) -> None:
        manager.remove_server.side_effect = lambda _: serve(manager, a_client("time", "other"))
        agent.disconnect_mcp_server("time")
        assert list(_TOOL_REGISTRY) == ["mcp_time_other"]

    def test_a_change_of_tools_on_the_way_out_leaves_nothing_behind(self, manager: Mock, agent: AgentFirst) -> None:
        manager.remove_server.side_effect = lambda name: publish(manager, ToolsChanged(name, added=("late",)))
        agent.disconnect_mcp_server("time")
        assert list(_TOOL_REGISTRY) == []

    def test_closing_stops_all_servers_and_removes_their_tools(self, manager: Mock) -> None:
        manager.add_server.side_effect = [a_client("one", "read"), a_client("two", "read")]
        agent = AgentFirst(auto_load_config=False)
        agent.connect_mcp_server("one", CONFIG)
        agent.connect_mcp_server("two", CONFIG)
        agent.close_mcp()
        manager.disconnect_all.assert_called_once_with()
        manager.subscribe.return_value.assert_called_once_with()
        assert list(_TOOL_REGISTRY) == []
        assert agent.system_prompt == "You are silent."

    def test_closing_what_was_never_used_does_nothing(self, manager_class: Mock) -> None:
        class Unused(MCPClientMixin):
            def __init__(self) -> None: ...

        Unused().close_mcp()
        manager_class.assert_not_called()

    def test_after_closing_a_server_can_be_connected_again(self, manager: Mock, manager_class: Mock) -> None:
        manager.add_server.return_value = a_client("time", "now")
        host = Host()
        host.close_mcp()
        assert host.connect_mcp_server("time", CONFIG) is True
        assert manager_class.call_count == 2


class TestSettings:
    def test_the_manager_gets_the_settings_the_hosts_debug_mode_and_what_answers_servers(
        self, mocker: Any, manager_class: Mock
    ) -> None:
        settings = {"tool_filter": ToolFilter(deny=["delete_*"]), "restart_policy": RestartPolicy(max_restarts=1)}
        settings |= {"on_elicitation": print, "on_sampling": repr, "roots": ["/work"], "before_call": repr}

        class Configured(MCPClientMixin):
            def __init__(self) -> None:
                self.debug = True
                super().__init__(auto_load_config=False, **settings)

        assert Configured()._mcp_manager is manager_class.return_value
        manager_class.assert_called_once_with(config=mocker.ANY, debug=True, **settings)

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_debug_reaches_the_agent_and_the_manager(self, manager_class: Mock, cls: type[AgentFirst]) -> None:
        assert cls(debug=True, auto_load_config=False).debug is True
        assert manager_class.call_args.kwargs["debug"] is True

    def test_debug_stays_with_the_mixin_where_no_other_class_takes_it(self, manager_class: Mock) -> None:
        class Base:
            def __init__(self, size: int) -> None:
                self.size = size

        class Sized(MCPClientMixin, Base): ...

        assert Sized(debug=True, auto_load_config=False, size=3).size == 3
        assert manager_class.call_args.kwargs["debug"] is True

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_an_argument_that_no_class_knows_is_named(self, manager: Mock, cls: type[Any]) -> None:
        with pytest.raises(TypeError, match=r"unexpected .*arguments: colour"):
            cls(colour="red")

    def test_a_value_that_no_class_takes_is_named(self, manager: Mock) -> None:
        class Bare(MCPClientMixin): ...

        with pytest.raises(TypeError, match=r"Bare\(\) got unexpected arguments: 'red'"):
            Bare("red")


class TestDeclaredServers:
    """`mcp_servers`, and what is connected in memory."""

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_they_are_connected_when_the_agent_is_constructed(
        self, manager: Mock, manager_class: Mock, cls: type[AgentFirst]
    ) -> None:
        serve(manager, a_client("time", "now"))
        agent = cls(mcp_servers={"time": CONFIG}, max_steps=3)
        config = manager_class.call_args.kwargs["config"]
        assert (config.get_servers(), config.config_file) == ({"time": CONFIG}, None)
        manager.load_from_config.assert_called_once_with()
        assert agent.max_steps == 3
        assert "- mcp_time_now" in agent.system_prompt

    def test_their_tools_are_in_the_order_of_the_servers_whichever_was_ready_first(self, manager: Mock) -> None:
        clients = {name: a_client(name, "z", "a") for name in ("one", "two")}

        def load() -> None:
            for name in ("two", "one"):
                serve(manager, clients[name])
                publish(manager, StateChanged(name, ServerState.STARTING, ServerState.READY, 1))
            serve(manager, *clients.values())

        manager.config.get_servers.return_value = dict.fromkeys(clients, CONFIG)
        manager.load_from_config.side_effect = load
        agent = AgentFirst(mcp_servers=dict.fromkeys(clients, CONFIG))
        expected = ["mcp_one_z", "mcp_one_a", "mcp_two_z", "mcp_two_a"]
        assert list(agent._tools_registry) == expected
        assert agent.system_prompt.endswith("\n".join(f"- {name}" for name in expected))
        # A tool that comes later is beside those of its server.
        clients["one"].list_tools.return_value.append(a_tool("late"))
        publish(manager, ToolsChanged("one", added=("late",)))
        assert list(agent._tools_registry) == [*expected[:2], "mcp_one_late", *expected[2:]]

    @pytest.mark.parametrize("entry", [{"comand": "uvx"}, "uvx", None, {"command": "uvx", "timeout": "long"}])
    def test_an_entry_that_cannot_be_one_is_a_mistake_of_the_caller(self, manager_class: Mock, entry: Any) -> None:
        with pytest.raises(ValueError, match="server 'time'"):
            AgentFirst(mcp_servers={"time": entry})
        manager_class.assert_not_called()

    def test_they_count_before_those_of_a_file(self, manager_class: Mock, tmp_path: Path) -> None:
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"time": {"command": "old"}, "git": {"command": "git"}}}))
        AgentFirst(mcp_servers={"time": CONFIG}, config_file=str(file))
        config = manager_class.call_args.kwargs["config"]
        assert config.get_servers() == {"time": CONFIG, "git": {"command": "git"}}

    def test_those_of_the_files_are_added_when_they_are_asked_for(self, manager: Mock, home: Path) -> None:
        Path("mcp_servers.json").write_text(json.dumps({"mcpServers": {"time": {"command": "old"}, "git": CONFIG}}))
        agent = AgentFirst(mcp_servers={"time": CONFIG})
        manager.config = MCPConfig.in_memory({"time": CONFIG})
        agent.load_mcp_servers_from_config()
        assert manager.config.get_servers() == {"time": CONFIG, "git": CONFIG}
        assert manager.load_from_config.call_count == 2

    def test_the_configuration_of_an_assigned_manager_stays(self, manager: Mock) -> None:
        agent = AgentFirst()
        agent._mcp_manager = own = Mock()
        own.list_servers.return_value = []
        own.status.return_value = []
        own.config = MCPConfig.in_memory({})
        before = own.config
        agent.load_mcp_servers_from_config()
        assert own.config is before

    @pytest.mark.parametrize("save", [None, False, True])
    def test_a_server_that_is_connected_later_is_saved_only_when_told_so(
        self, manager: Mock, home: Path, save: bool | None
    ) -> None:
        manager.add_server.return_value = a_client("db")
        agent = AgentFirst(auto_load_config=True)
        assert agent.connect_mcp_server("db", CONFIG, save=save) is True
        manager.add_server.assert_called_once_with("db", CONFIG, save=bool(save))
        assert list((home / ".gaia").iterdir()) == []
        if save:
            assert manager.config.config_file == home / ".gaia" / "mcp_servers.json"

    def test_a_server_that_runs_already_can_be_saved(self, manager: Mock, home: Path) -> None:
        agent = AgentFirst(mcp_servers={"db": CONFIG})
        serve(manager, a_client("db"))
        assert agent.connect_mcp_server("db", dict(CONFIG), save=True) is True
        manager.add_server.assert_not_called()
        saved = json.loads((home / ".gaia" / "mcp_servers.json").read_text())
        assert saved == {"mcpServers": {"db": CONFIG}}


class TestLoading:
    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_the_stacked_files_are_loaded_by_default(
        self, manager: Mock, home: Path, log_events: LogEvents, cls: type[AgentFirst]
    ) -> None:
        user_file, local = home / ".gaia" / "mcp_servers.json", Path.cwd() / "mcp_servers.json"
        user_file.parent.mkdir()
        user_file.write_text(json.dumps({"mcpServers": {"time": CONFIG, "git": CONFIG}}))
        local.write_text(json.dumps({"mcpServers": {"git": {"command": "git"}, "acer": CONFIG}}))
        cls()
        manager.load_from_config.assert_called_once_with()
        assert manager.config.get_servers() == {"time": CONFIG, "git": {"command": "git"}, "acer": CONFIG}
        (fields,) = log_events("mcp_servers_configured")
        assert fields["agent"] == cls.__name__
        assert fields["servers"] == {str(user_file): ["time"], str(local): ["git", "acer"]}

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    @pytest.mark.parametrize("arguments", [{"auto_load_config": False}, {"mcp_servers": {}}, {"mcp_servers": SERVERS}])
    def test_they_are_not_if_the_agent_says_so_or_gets_its_servers_in_code(
        self, manager: Mock, cls: type[AgentFirst], arguments: dict[str, Any]
    ) -> None:
        read = manager.config
        cls(**arguments)
        assert manager.config is read
        assert manager.load_from_config.call_count == bool(arguments.get("mcp_servers"))

    def test_what_a_constructor_has_loaded_is_not_loaded_again(self, manager: Mock) -> None:
        class ConfigAgent(AgentFirst):
            def __init__(self) -> None:
                super().__init__()
                self.count = self.load_mcp_servers_from_config()

        ConfigAgent()
        manager.load_from_config.assert_called_once_with()

    def test_a_configuration_that_was_given_to_the_manager_is_not_replaced(self, manager: Mock, tmp_path: Path) -> None:
        agent = AgentFirst(auto_load_config=False)
        given = agent._mcp_manager.config = MCPConfig(tmp_path / "servers.json")
        agent.load_mcp_servers_from_config()
        assert agent._mcp_manager.config is given

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_a_config_file_is_loaded_alone_and_always(
        self, mocker: Any, manager: Mock, manager_class: Mock, cls: type[AgentFirst]
    ) -> None:
        config_class = mocker.patch("gaia.mcp.mixin.MCPConfig")
        cls(auto_load_config=False, config_file="servers.json")
        config_class.assert_called_once_with("servers.json")
        assert manager_class.call_args.kwargs["config"] is config_class.return_value
        manager.load_from_config.assert_called_once_with()

    def test_it_returns_how_many_servers_are_connected(self, manager: Mock) -> None:
        serve(manager, a_client("one", "read"), a_client("two", "read"))
        manager.list_servers.return_value = ["one", "gone meanwhile", "two"]
        assert Host().load_mcp_servers_from_config() == 2
        assert list(_TOOL_REGISTRY) == ["mcp_one_read", "mcp_two_read"]

    def test_it_is_loaded_after_all_constructors_and_after_what_they_connect(self, manager: Mock) -> None:
        order = []

        class Named(AgentFirst):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(auto_load_config=True, **kwargs)
                self.connect_mcp_server("time", CONFIG)

        class Child(Named):
            def __init__(self) -> None:
                super().__init__()
                order.append("constructed")

        manager.add_server.side_effect = lambda name, config: order.append(f"connected {name}") or a_client(name)
        manager.load_from_config.side_effect = lambda: order.append("loaded")
        Child()
        assert order == ["connected time", "constructed", "loaded"]

    def test_calling_each_constructor_by_name_gives_the_last_word_to_the_mixins(
        self, mocker: Any, manager: Mock, manager_class: Mock
    ) -> None:
        class Explicit(SilentAgent, MCPClientMixin):
            def __init__(self, **settings: Any) -> None:
                Agent.__init__(self, max_steps=10)
                MCPClientMixin.__init__(self, **settings)

        mocker.patch("gaia.mcp.mixin.MCPConfig")
        assert Explicit(auto_load_config=False).max_steps == 10
        manager.load_from_config.assert_not_called()
        Explicit(config_file="servers.json")
        manager.load_from_config.assert_called_once_with()
        assert manager_class.call_count == 2

    def test_settings_that_come_after_the_first_server_are_refused(self, manager: Mock) -> None:
        class Late(MCPClientMixin):
            def __init__(self) -> None:
                self.connect_mcp_server("time", CONFIG)
                super().__init__(config_file="servers.json")

        manager.add_server.return_value = a_client("time")
        with pytest.raises(RuntimeError, match="too late"):
            Late()

    def test_a_host_that_never_calls_super_gets_its_manager_at_the_first_use(
        self, manager: Mock, manager_class: Mock
    ) -> None:
        class Base:
            def __init__(self) -> None:
                self.ready = True

        class Uncooperative(Base, MCPClientMixin):
            def __init__(self) -> None:
                Base.__init__(self)

        host = Uncooperative()
        assert host.ready
        manager_class.assert_not_called()
        manager.add_server.return_value = a_client("time", "now")
        assert host.connect_mcp_server("time", CONFIG) is True
        assert host.list_mcp_servers() == []
        manager_class.assert_called_once()
        manager.load_from_config.assert_not_called()

    def test_threads_that_need_the_manager_at_once_share_one(self, mocker: Any) -> None:
        class Unused(MCPClientMixin):
            def __init__(self) -> None: ...

        host = Unused()
        second = threading.Thread(target=lambda: host._mcp_manager)

        def make_manager(**_: Any) -> Mock:
            if second.ident is None:
                second.start()
                # It needs the manager now, and has to wait for the one that is being made.
                second.join(0.05)
            return Mock()

        manager_class = mocker.patch("gaia.mcp.mixin.MCPClientManager", side_effect=make_manager)
        host._mcp_manager.list_servers()
        second.join()
        manager_class.assert_called_once()

    def test_a_manager_can_be_assigned_and_is_listened_to_instead_of_the_one_before(self, manager: Mock) -> None:
        class Assigned(MCPClientMixin):
            def __init__(self) -> None:
                super().__init__(auto_load_config=False)
                self._mcp_manager = own

        own = Mock()
        host = Assigned()
        assert host._mcp_manager is own
        own.subscribe.assert_called_once()
        other = host._mcp_manager = Mock()
        own.subscribe.return_value.assert_called_once_with()
        other.subscribe.assert_called_once()

    def test_a_constructor_that_fails_stops_what_it_has_started(self, manager: Mock) -> None:
        class Failing(AgentFirst):
            def __init__(self) -> None:
                super().__init__()
                self.connect_mcp_server("time", CONFIG)
                raise LookupError

        manager.add_server.return_value = a_client("time", "now")
        with pytest.raises(LookupError):
            Failing()
        manager.disconnect_all.assert_called_once_with()
        manager.load_from_config.assert_not_called()
        assert list(_TOOL_REGISTRY) == []

    def test_files_that_the_agent_did_not_name_do_not_keep_it_from_working(self, manager: Mock, home: Path) -> None:
        Path("mcp_servers.json").write_text("{broken")
        problems = []

        class Warned(AgentFirst):
            def _create_console(self) -> SilentConsole:
                console = SilentConsole()
                console.print_error = problems.append  # type: ignore[method-assign]
                return console

        agent = Warned(auto_load_config=True, mcp_servers={"git": CONFIG})
        assert len(problems) == 1
        assert "MCP servers were not loaded: " in problems[0]
        assert "mcp_servers.json: line 1, column 2" in problems[0]
        # The servers that it has itself are connected.
        manager.load_from_config.assert_called_once_with()
        manager.add_server.return_value = a_client("time", "now")
        assert agent.connect_mcp_server("time", CONFIG) is True
        assert agent.connect_mcp_server("db", CONFIG, save=True) is False
        assert "mcp_servers.json: line 1, column 2" in problems[1]

    def test_a_broken_file_does_not_matter_to_an_agent_that_loads_none(self, home: Path) -> None:
        Path("mcp_servers.json").write_text("{broken")
        agent = AgentFirst(auto_load_config=False)
        assert agent.list_mcp_servers() == []
        with pytest.raises(ConfigError, match=r"mcp_servers\.json: line 1, column 2"):
            agent.load_mcp_servers_from_config()

    def test_a_broken_file_that_the_agent_names_is_an_error(self, tmp_path: Path) -> None:
        file = tmp_path / "servers.json"
        file.write_text("[]")
        with pytest.raises(ConfigError, match=r"servers\.json"):
            AgentFirst(config_file=str(file))


class TestConfigFile:
    """Of an agent of its own, with real servers where something is saved."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "team.json"

    def test_one_that_does_not_exist_starts_empty(self, manager: Mock, file: Path, log_events: LogEvents) -> None:
        AgentFirst(config_file=str(file))
        manager.load_from_config.assert_called_once_with()
        (event,) = log_events("config_file_missing")
        assert event["file"] == str(file)
        assert "correct the path" in event["hint"]
        assert not file.exists()

    def test_what_is_connected_is_saved_there(self, demo_server: dict[str, Any], file: Path) -> None:
        for _ in range(2):
            agent = AgentFirst(config_file=file)
            try:
                assert agent.connect_mcp_server("demo", demo_server) is True
                assert agent.connect_mcp_server("other", demo_server, save=False) is True
                assert json.loads(file.read_text()) == {"mcpServers": {"demo": demo_server}}
                assert agent._mcp_manager.config.source_of("demo") == file
            finally:
                agent.close_mcp()

    def test_the_same_entry_is_not_saved_again(self, demo_server: dict[str, Any], file: Path, closing: Closing) -> None:
        class Connecting(AgentFirst):
            def __init__(self) -> None:
                super().__init__(config_file=file)
                self.connect_mcp_server("demo", demo_server)

        file.write_text(json.dumps({"mcpServers": {"demo": demo_server}}))
        before = file.stat().st_mtime_ns, file.read_text()
        agent = closing(Connecting())
        assert agent.list_mcp_servers() == ["demo"]
        assert (file.stat().st_mtime_ns, file.read_text()) == before

    def test_a_file_that_cannot_be_written_is_no_obstacle(
        self, demo_server: dict[str, Any], tmp_path: Path, log_events: LogEvents, closing: Closing
    ) -> None:
        # Permissions would not stop a test that is run by root.
        (tmp_path / "no folder").write_text("")
        file = tmp_path / "folder" / "team.json"
        agent = closing(AgentFirst(config_file=file))
        (tmp_path / "folder").symlink_to(tmp_path / "no folder")
        assert agent.connect_mcp_server("demo", demo_server) is True
        (fields,) = log_events("config_not_saved")
        assert (fields["server"], str(file) in fields["error"]) == ("demo", True)
        assert agent.connect_mcp_server("must", demo_server, save=True) is False
        assert agent.list_mcp_servers() == ["demo"]


def publish(manager: Mock, event: Event) -> None:
    manager.subscribe.call_args.args[0](event)


class TestFollowingTheServer:
    def test_a_change_of_tools_changes_registry_and_prompt(
        self, manager: Mock, client: Mock, agent: AgentFirst
    ) -> None:
        assert "mcp_time_zones" in agent.system_prompt
        client.list_tools.return_value = [a_tool("now", zone={"type": "string"}), a_tool("convert")]
        publish(manager, ToolsChanged("time", added=("convert",), removed=("zones",), changed=("now",)))
        assert list(_TOOL_REGISTRY) == ["mcp_time_now", "mcp_time_convert"]
        assert _TOOL_REGISTRY["mcp_time_now"]["parameters"].keys() == {"zone"}
        assert "- mcp_time_now\n- mcp_time_convert" in agent.system_prompt

    def test_the_tools_of_other_servers_stay(self, manager: Mock, client: Mock, agent: AgentFirst) -> None:
        other = a_client("git", "log")
        agent._register_mcp_tools(other)
        serve(manager, client, other)
        client.list_tools.return_value = []
        publish(manager, ToolsChanged("time", removed=("now", "zones")))
        assert list(_TOOL_REGISTRY) == ["mcp_git_log"]

    @pytest.mark.parametrize(
        "event",
        [
            StateChanged("time", ServerState.READY, ServerState.RESTARTING, 1),
            StateChanged("time", ServerState.RESTARTING, ServerState.READY, 2),
            StateChanged("time", ServerState.RESTARTING, ServerState.FAILED, 2),
            Restarted("time", 2, 0.5),
            ServerLog("time", "info", None, "restarting"),
        ],
    )
    def test_tools_stay_while_a_server_is_restarted(
        self, manager: Mock, client: Mock, agent: AgentFirst, event: Event
    ) -> None:
        before = _TOOL_REGISTRY.copy()
        client.list_tools.return_value = []
        publish(manager, event)
        assert before == _TOOL_REGISTRY
        assert "mcp_time_now" in agent.system_prompt

    def test_tools_go_when_the_client_is_disconnected(self, manager: Mock, client: Mock, agent: AgentFirst) -> None:
        assert "mcp_time_now" in agent.system_prompt
        client.state = ServerState.CLOSED
        publish(manager, StateChanged("time", ServerState.READY, ServerState.CLOSED, 1))
        assert list(_TOOL_REGISTRY) == []
        assert agent.system_prompt == "You are silent."

    def test_tools_come_back_when_the_client_is_connected_again(
        self, manager: Mock, client: Mock, agent: AgentFirst
    ) -> None:
        client.state = ServerState.CLOSED
        publish(manager, StateChanged("time", ServerState.FAILED, ServerState.CLOSED, 3))
        client.state = ServerState.READY
        publish(manager, StateChanged("time", ServerState.STARTING, ServerState.READY, 1))
        assert list(_TOOL_REGISTRY) == ["mcp_time_now", "mcp_time_zones"]
        assert "mcp_time_now" in agent.system_prompt

    @pytest.mark.parametrize("closed", [False, True])
    def test_events_that_were_missed_may_have_been_any(
        self, manager: Mock, client: Mock, agent: AgentFirst, closed: bool
    ) -> None:
        client.list_tools.return_value = [a_tool("convert")]
        client.state = ServerState.CLOSED if closed else ServerState.READY
        publish(manager, EventsDropped("time", 5))
        assert list(_TOOL_REGISTRY) == ([] if closed else ["mcp_time_convert"])

    def test_tools_go_when_the_manager_drops_the_server(self, manager: Mock, agent: AgentFirst) -> None:
        serve(manager)
        publish(manager, StateChanged("time", ServerState.READY, ServerState.CLOSED, 1))
        assert list(_TOOL_REGISTRY) == []

    def test_the_end_of_an_earlier_server_of_the_same_name_changes_nothing(
        self, manager: Mock, agent: AgentFirst
    ) -> None:
        publish(manager, StateChanged("time", ServerState.READY, ServerState.CLOSED, 1))
        assert list(_TOOL_REGISTRY) == ["mcp_time_now", "mcp_time_zones"]

    def test_a_server_that_goes_while_its_tools_are_listed_leaves_none(
        self, manager: Mock, client: Mock, agent: AgentFirst
    ) -> None:
        def list_tools() -> list[MCPTool]:
            agent.disconnect_mcp_server("time")
            serve(manager)
            return [a_tool("now")]

        client.list_tools.side_effect = list_tools
        publish(manager, ToolsChanged("time", added=("now",)))
        assert list(_TOOL_REGISTRY) == []

    def test_a_server_that_goes_before_its_tools_are_listed_leaves_none(
        self, manager: Mock, client: Mock, agent: AgentFirst
    ) -> None:
        def get_client(name: str) -> Mock:
            serve(manager, client)
            agent.disconnect_mcp_server(name)
            serve(manager)
            return client

        manager.get_client.side_effect = get_client
        publish(manager, ToolsChanged("time", changed=("now",)))
        assert list(_TOOL_REGISTRY) == []

    def test_an_agent_that_closes_while_tools_are_listed_keeps_none(
        self, manager: Mock, client: Mock, agent: AgentFirst
    ) -> None:
        def list_tools() -> list[MCPTool]:
            client.list_tools.side_effect = None
            agent.close_mcp()
            return [a_tool("now")]

        client.list_tools.side_effect = list_tools
        publish(manager, ToolsChanged("time", added=("now",)))
        assert list(_TOOL_REGISTRY) == []

    def test_a_listing_that_was_overtaken_is_not_used(self, manager: Mock, client: Mock, agent: AgentFirst) -> None:
        def old_listing() -> list[MCPTool]:
            client.list_tools.side_effect = None
            client.list_tools.return_value = [a_tool("new")]
            publish(manager, ToolsChanged("time", added=("new",)))
            return [a_tool("old")]

        client.list_tools.side_effect = old_listing
        publish(manager, ToolsChanged("time", added=("old",)))
        assert list(_TOOL_REGISTRY) == ["mcp_time_new"]

    def test_an_override_that_registers_by_itself_is_followed_and_cleaned_up(self, manager: Mock, client: Mock) -> None:
        class Custom(AgentFirst):
            def _register_mcp_tools(self, client: Any) -> None:
                for tool in client.list_tools():
                    entry = tool.to_gaia_format(client.name)
                    self._tools_registry[entry["name"]] = entry | {"function": print}

        agent = Custom(auto_load_config=False)
        agent.connect_mcp_server("time", CONFIG)
        serve(manager, client)
        client.list_tools.return_value.append(a_tool("convert"))
        publish(manager, ToolsChanged("time", added=("convert",)))
        assert set(_TOOL_REGISTRY) == {"mcp_time_now", "mcp_time_zones", "mcp_time_convert"}
        agent.disconnect_mcp_server("time")
        assert list(_TOOL_REGISTRY) == []


class TestLoadSummary:
    @pytest.fixture
    def host(self, manager: Mock) -> Any:
        host = Host()
        host.console = Mock()  # type: ignore[attr-defined]
        return host

    def test_each_configured_server_has_a_line(self, manager: Mock, host: Any) -> None:
        serve(manager, a_client("time", "now", "zones"))
        manager.config.get_servers.return_value = {"time": CONFIG, "git": CONFIG, "off": {**CONFIG, "disabled": True}}
        manager.status.return_value = [
            ServerStatus(name="git", state=ServerState.FAILED, last_error="exited with code 1")
        ]
        host.load_mcp_servers_from_config()
        host.console.print_info.assert_called_once_with(
            "✓ time (2 tools): now, zones\n✗ git failed to connect: exited with code 1"
        )

    def test_nothing_is_printed_where_nothing_is_configured(self, manager: Mock, host: Any) -> None:
        host.load_mcp_servers_from_config()
        host.console.print_info.assert_not_called()


class TestRealServer:
    """The same with nothing replaced: a manager, a process, its tools."""

    def test_an_agent_uses_a_server_until_it_disconnects(
        self, demo_server: dict[str, Any], home: Path, closing: Closing
    ) -> None:
        agent = closing(AgentFirst())
        assert agent.connect_mcp_server("demo", demo_server) is True
        result = agent._execute_tool("add", {"a": 2, "b": 3})
        assert result["status"] == "success"
        assert result["data"]["structuredContent"] == {"sum": 5}
        failed = agent._execute_tool("demo_fail", {})
        assert failed["status"] == "error"
        assert isinstance(failed["error"], str)
        agent.disconnect_mcp_server("demo")
        assert list(_TOOL_REGISTRY) == []

    def test_tools_outlive_a_crash(self, demo_server: dict[str, Any], home: Path, closing: Closing) -> None:
        agent = closing(AgentFirst(confirm="never"))
        agent.connect_mcp_server("demo", demo_server)
        before = set(_TOOL_REGISTRY)
        assert agent._execute_tool("crash", {})["data"]["error_type"] == "server_crashed"
        assert set(_TOOL_REGISTRY) == before
        assert agent._execute_tool("add", {"a": 2, "b": 3})["status"] == "success"

    @pytest.mark.parametrize("way", ["connect_mcp_server", "connect", "disconnect and connect", "call"])
    def test_however_a_server_that_failed_becomes_ready_its_tools_are_registered(
        self, fault_server: Callable[..., dict[str, Any]], home: Path, tmp_path: Path, way: str, closing: Closing
    ) -> None:
        config = fault_server(
            tools=[{"name": "look"}],
            only_tools=True,
            faults=[{"tool": "echo", "crash": "before_answer"}],
            state_file=tmp_path / "state",
            by_start={"2": {"exit_at_start": {"code": 1}}, "3": {"faults": []}},
        )
        config["restart"] = {"maxRestarts": 1, "initialDelay": 0.01, "cooldown": 0.2 if way == "call" else 60.0}
        agent = closing(AgentFirst())
        assert agent.connect_mcp_server("s", config)
        client = agent.get_mcp_client("s")
        assert client is not None
        client.call_tool("echo")
        assert wait_until(lambda: client.state is ServerState.FAILED)
        if way == "connect_mcp_server":
            assert agent.connect_mcp_server("s", config) is True
            assert list(_TOOL_REGISTRY) == ["mcp_s_look"]
        elif way == "call":
            assert wait_until(client.is_connected)
        else:
            if way != "connect":
                client.disconnect()
            assert client.connect()
        assert wait_until(lambda: list(_TOOL_REGISTRY) == ["mcp_s_look"])
        # What was posted meanwhile has run.
        agent._mcp_manager._engine.factory.services.callbacks.close()
        assert list(_TOOL_REGISTRY) == ["mcp_s_look"]
        assert "mcp_s_look" in agent.system_prompt
        assert agent._execute_tool("mcp_s_look", {})["status"] == "success"

    def test_a_server_that_failed_and_fails_again_is_not_connected(
        self, fault_server: Callable[..., dict[str, Any]], home: Path, tmp_path: Path, closing: Closing
    ) -> None:
        config = fault_server(
            faults=[{"tool": "echo", "crash": "before_answer"}],
            state_file=tmp_path / "state",
            by_start={str(number): {"exit_at_start": {"code": 1}} for number in range(2, 10)},
        )
        config["restart"] = {"maxRestarts": 1, "initialDelay": 0.01}
        agent = closing(AgentFirst())
        assert agent.connect_mcp_server("s", config)
        client = agent.get_mcp_client("s")
        assert client is not None
        client.call_tool("echo")
        assert wait_until(lambda: client.state is ServerState.FAILED)
        agent.console = Mock()
        assert agent.connect_mcp_server("s", config) is False
        (said,) = agent.console.print_error.call_args.args
        assert said == f"MCP server s failed to connect: {client.last_error}"

    def test_the_registry_follows_the_servers_list(
        self, feature_server: dict[str, Any], home: Path, closing: Closing
    ) -> None:
        grown = threading.Event()

        class Watching(AgentFirst):
            def rebuild_system_prompt(self) -> None:
                super().rebuild_system_prompt()
                if len(_TOOL_REGISTRY) > len(before):
                    grown.set()

        before: dict[str, Any] = dict.fromkeys(range(1000))  # type: ignore[arg-type]
        agent = closing(Watching())
        agent.connect_mcp_server("demo", feature_server)
        before = _TOOL_REGISTRY.copy()
        agent._execute_tool("grow", {})
        assert grown.wait(PATIENCE)
        (new,) = _TOOL_REGISTRY.keys() - before.keys()
        assert f"- {new}" in agent.system_prompt

    def test_a_second_run_of_the_same_agent_connects_again(self, demo_server: dict[str, Any], home: Path) -> None:
        # The first run saves the server, so the second one finds it in the configuration as well.
        for _ in range(2):
            agent = AgentFirst(auto_load_config=True)
            try:
                assert agent.connect_mcp_server("demo", demo_server, save=True) is True
                assert "mcp_demo_add" in _TOOL_REGISTRY
            finally:
                agent.close_mcp()
        saved = json.loads((home / ".gaia" / "mcp_servers.json").read_text())
        assert list(saved["mcpServers"]) == ["demo"]

    @pytest.mark.parametrize("cls", [AgentFirst, MixinFirst])
    def test_an_agent_has_the_servers_that_it_names_and_no_others(
        self, demo_server: dict[str, Any], home: Path, cls: type[AgentFirst], closing: Closing
    ) -> None:
        shown = []

        class Shown(cls):  # type: ignore[misc, valid-type]
            def _create_console(self) -> SilentConsole:
                console = SilentConsole()
                console.print_info = shown.append  # type: ignore[method-assign]
                return console

        for file, name in ((home / ".gaia" / "mcp_servers.json", "global"), (Path("mcp_servers.json"), "local")):
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps({"mcpServers": {name: demo_server}}))
        before = {file: file.read_bytes() for file in (home / ".gaia" / "mcp_servers.json", Path("mcp_servers.json"))}
        agent = closing(Shown(mcp_servers={"one": demo_server}))
        assert agent.list_mcp_servers() == ["one"]
        assert agent.connect_mcp_server("two", demo_server) is True
        agent.disconnect_mcp_server("one")
        assert agent.list_mcp_servers() == ["two"]
        assert {entry["_mcp_server"] for entry in _TOOL_REGISTRY.values()} == {"two"}
        assert agent._execute_tool("mcp_two_add", {"a": 1, "b": 2})["status"] == "success"
        assert [text.partition(":")[0] for text in shown] == ["✓ one (6 tools)", "✓ two (6 tools)"]
        assert "add, echo" in shown[0]
        assert {file: file.read_bytes() for file in before} == before
        assert list((home / ".gaia").iterdir()) == [home / ".gaia" / "mcp_servers.json"]

    def test_a_home_that_cannot_be_written_to_is_no_hindrance(
        self, demo_server: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing: Closing
    ) -> None:
        # Permissions would not stop a test that is run by root.
        no_folder = tmp_path / "home"
        no_folder.write_text("")
        monkeypatch.setenv("HOME", str(no_folder))
        monkeypatch.setenv("USERPROFILE", str(no_folder))
        agent = closing(AgentFirst(mcp_servers={"one": demo_server}))
        assert agent.connect_mcp_server("two", demo_server) is True
        assert agent.list_mcp_servers() == ["one", "two"]
        assert agent.connect_mcp_server("three", demo_server, save=True) is False
        agent.disconnect_mcp_server("one")
        assert agent.list_mcp_servers() == ["two"]


def test_the_mixin_works_with_an_agent_that_is_served_too(manager: Mock) -> None:
    class Served(MCPAgent, SilentAgent, MCPClientMixin):
        def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
            return []

        def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return {}

    Served(auto_load_config=True)
    manager.load_from_config.assert_called_once_with()


def test_the_defaults_allow_every_tool(manager_class: Mock) -> None:
    Host()
    assert manager_class.call_args.kwargs["tool_filter"] is ALLOW_ALL
