"""The usage examples and extension points of the client's specification, as programs that follow its text have them.

Their servers from npm are played by the demo server. What the text prints is asserted.
"""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia import SilentConsole
from gaia.agents.base.agent import Agent
from gaia.agents.base.tools import _TOOL_REGISTRY
from gaia.mcp import MCPClient, MCPClientManager, MCPClientMixin
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.transports.base import MCPTransport
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.mcp.tools.tool import MCPTool

Json = dict[str, Any]
MakeAgent = Callable[..., Any]


class PlainAgent(Agent, MCPClientMixin):
    def _get_system_prompt(self) -> str:
        return "You help."

    def _create_console(self) -> SilentConsole:
        return SilentConsole()

    def _register_tools(self) -> None:
        pass


@pytest.fixture
def make_agent() -> Iterator[MakeAgent]:
    """Make an agent of a class; its servers are stopped after the test."""
    agents: list[Any] = []

    def make(cls: type[Any], **settings: Any) -> Any:
        agents.append(cls(**settings))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close_mcp()


class TestClient:
    def test_direct_usage_without_an_agent(self, demo_server: Json) -> None:
        client = MCPClient.from_config(name="demo", config=demo_server, timeout=30, debug=False)
        printed = []
        if client.connect():
            tools = client.list_tools()
            printed += [f"- {tool.name}: {tool.description}" for tool in tools]
            result = client.call_tool("echo", {"text": "hello"})
            if "content" in result:
                printed.append(result["content"][0]["text"])
            elif "error" in result:
                printed.append(f"Error: {result['error']}")
            client.disconnect()
        assert printed[0].startswith("- ")
        assert printed[-1] == "hello"
        assert client._tools is None

    def test_a_command_line(self, demo_server: Json) -> None:
        client = MCPClient.from_command("demo", f"{demo_server['command']} {' '.join(demo_server['args'])}")
        assert client.connect() is True
        assert client.server_info["name"]
        client.disconnect()
        assert client.is_connected() is False


class TestTransport:
    def test_the_attributes_of_one_that_runs(self, demo_server: Json) -> None:
        command = f"{demo_server['command']} {' '.join(demo_server['args'])}"
        transport = StdioTransport(command, timeout=20)
        assert (transport.command, transport.timeout, transport.debug) == (command, 20, False)
        assert transport._process is None
        assert transport._request_id == 0
        assert transport.connect() is True
        assert transport.connect() is True
        assert transport._process is not None
        assert transport._process.poll() is None
        response = transport.send_request("ping")
        assert (response["jsonrpc"], response["id"], response["result"]) == ("2.0", transport._request_id, {})
        transport.disconnect()
        transport.disconnect()
        assert transport.is_connected() is False

    def test_one_of_an_applications_own(self) -> None:
        class HttpTransport(MCPTransport):
            def __init__(self, url: str, timeout: int = 30) -> None:
                self.url = url
                self.timeout = timeout
                self._connected = False

            def connect(self) -> bool:
                self._connected = True
                return True

            def disconnect(self) -> None:
                self._connected = False

            def send_request(self, method: str, params: Json | None = None) -> Json:
                return {"result": {"protocolVersion": "1.0.0", "serverInfo": {"name": self.url}}}

            def is_connected(self) -> bool:
                return self._connected

        client = MCPClient("own", HttpTransport("http://localhost"))
        assert client.connect() is True
        assert client.server_info == {"name": "http://localhost"}

    def test_one_whose_requests_are_still_to_be_written_cannot_be_connected(self) -> None:
        class Unfinished(MCPTransport):
            def connect(self) -> bool:
                return True

            def disconnect(self) -> None: ...

            def send_request(self, method: str, params: Json | None = None) -> Json:
                return None  # type: ignore[return-value]  # as the text has it: a body that is `pass`

            def is_connected(self) -> bool:
                return True

        client = MCPClient("own", Unfinished())
        assert client.connect() is False
        assert client.list_tools() == []


class TestManager:
    def test_servers_of_a_file_and_of_the_program(self, demo_server: Json, tmp_path: Path) -> None:
        file = tmp_path / "mcp_servers.json"
        file.write_text(json.dumps({"mcpServers": {"first": demo_server}}))
        config = MCPConfig(str(file))
        manager = MCPClientManager(config=config)
        try:
            client = manager.add_server("second", demo_server)
            assert client.is_connected()
            assert manager.list_servers() == ["second"]
            found = manager.get_client("second")
            assert found is client
            assert found.list_tools()
            assert manager.get_client("third") is None
            manager.load_from_config()
            assert sorted(manager.list_servers()) == ["first", "second"]
            assert set(manager._clients) == {"first", "second"}
            assert json.loads(file.read_text())["mcpServers"] == {"first": demo_server, "second": demo_server}
            with pytest.raises(ValueError, match="second"):
                manager.add_server("second", demo_server)
            manager.remove_server("second")
            assert list(json.loads(file.read_text())["mcpServers"]) == ["first"]
            manager.remove_server("second")
        finally:
            manager.disconnect_all()
        assert manager.list_servers() == []

    def test_a_config_is_a_copy(self, tmp_path: Path) -> None:
        file = tmp_path / "mcp_servers.json"
        file.write_text('{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}')
        config = MCPConfig(str(file))
        assert config.config_file == file
        config.get_servers()["time"]["command"] = "changed"
        config.get_server("time")["args"].append("changed")
        assert config.get_servers() == config._servers == {"time": {"command": "uvx", "args": ["mcp-server-time"]}}
        assert config.get_server("none") == {}
        assert config.server_exists("time")
        assert not config.server_exists("none")
        config.remove_server("none")


@pytest.mark.usefixtures("empty_registry")
class TestAgent:
    def test_several_servers_and_errors_of_tools(self, make_agent: MakeAgent, demo_server: Json) -> None:
        class MultiToolAgent(PlainAgent):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.connected = [self.connect_mcp_server(name, demo_server) for name in ("fs1", "github")]

        agent = make_agent(MultiToolAgent)
        assert agent.connected == [True, True]
        assert {"mcp_fs1_echo", "mcp_github_echo"} <= set(_TOOL_REGISTRY)
        entry = _TOOL_REGISTRY["mcp_fs1_echo"]
        assert entry["description"].startswith("[MCP:fs1] ")
        assert (entry["_mcp_server"], entry["_mcp_tool_name"], entry["atomic"]) == ("fs1", "echo", True)
        wrapped = entry["function"](text="hello")
        assert wrapped["status"] == "success"
        assert wrapped["data"]["content"][0]["text"] == "hello"
        client = agent.get_mcp_client("fs1")
        result = client.call_tool("fail", {"message": "File not found: /nonexistent"})
        printed = []
        if "error" in result:
            printed.append(f"Tool failed: {result['error']}")
        elif "content" in result:
            printed.append(f"Success: {result['content']}")
        assert printed == ["Tool failed: File not found: /nonexistent"]
        assert _TOOL_REGISTRY["mcp_fs1_fail"]["function"](message="no such file") == {
            "status": "error",
            "error": "no such file",
            "data": {"error": "no such file"},
        }
        agent.disconnect_mcp_server("fs1")
        agent.disconnect_mcp_server("fs1")
        assert agent.list_mcp_servers() == ["github"]
        assert "mcp_fs1_echo" not in _TOOL_REGISTRY
        assert "mcp_github_echo" in _TOOL_REGISTRY

    def test_a_server_that_cannot_be_connected(self, make_agent: MakeAgent) -> None:
        agent = make_agent(PlainAgent)
        assert agent.connect_mcp_server("filesystem", {"command": "there-is-no-such-program"}) is False
        for config in ("npx server", {"args": ["server"]}):
            with pytest.raises(ValueError, match="filesystem"):
                agent.connect_mcp_server("filesystem", config)

    @pytest.fixture
    def user_file(self, demo_server: Json) -> Path:
        file = Path.home() / ".gaia" / "mcp_servers.json"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": {"demo": demo_server}}))
        file.chmod(0o600)
        return file

    def test_servers_of_the_files_by_default(self, make_agent: MakeAgent, user_file: Path, demo_server: Json) -> None:
        Path("mcp_servers.json").write_text(json.dumps({"mcpServers": {"acer": demo_server}}))
        assert make_agent(PlainAgent).list_mcp_servers() == ["demo", "acer"]
        assert {"mcp_demo_echo", "mcp_acer_echo"} <= set(_TOOL_REGISTRY)
        assert make_agent(PlainAgent, auto_load_config=False).list_mcp_servers() == []
        assert make_agent(PlainAgent, mcp_servers={"own": demo_server}).list_mcp_servers() == ["own"]

    def test_a_file_that_does_not_exist_yet(self, demo_server: Json, tmp_path: Path) -> None:
        file = tmp_path / "mcp_servers.json"
        manager = MCPClientManager(config=MCPConfig(str(file)))
        second = MCPClientManager()
        try:
            manager.add_server("demo", demo_server)
            second = MCPClientManager(config=MCPConfig(str(file)))
            second.load_from_config()
            assert second.list_servers() == ["demo"]
        finally:
            manager.disconnect_all()
            second.disconnect_all()

    def test_keywords_of_the_original_agent(self, make_agent: MakeAgent, demo_server: Json, tmp_path: Path) -> None:
        """As the program for the whole way from ``gaia mcp add`` to an agent has it."""
        file = tmp_path / "servers.json"
        MCPConfig(file).add_server("demo", demo_server)

        class Migrated(PlainAgent):
            def __init__(self, config_path: str, **kwargs: Any) -> None:
                kwargs.setdefault("skip_lemonade", True)
                Agent.__init__(self, **kwargs)
                MCPClientMixin.__init__(self, auto_load_config=False)
                self._mcp_manager.config = MCPConfig(config_path)
                self.load_mcp_servers_from_config()

        with pytest.warns(DeprecationWarning, match="skip_lemonade"):
            agent = make_agent(Migrated, config_path=str(file))
        assert agent.list_mcp_servers() == ["demo"]
        assert "AVAILABLE TOOLS" in agent.system_prompt

    def test_servers_of_the_configuration(self, make_agent: MakeAgent, user_file: Path) -> None:
        class ConfigAgent(PlainAgent):
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.count = self.load_mcp_servers_from_config()

        agent = make_agent(ConfigAgent)
        assert agent.count == 1
        assert agent.list_mcp_servers() == ["demo"]
        assert "mcp_demo_echo" in _TOOL_REGISTRY

    def test_a_wrapper_of_its_own(self, make_agent: MakeAgent, demo_server: Json) -> None:
        class CustomAgent(PlainAgent):
            def _register_mcp_tools(self, client: MCPClient) -> None:
                for tool in client.list_tools():
                    gaia_tool = tool.to_gaia_format(client.name)

                    def custom_wrapper(tool: MCPTool = tool, **kwargs: Any) -> Json:
                        return {"wrapped": client.call_tool(tool.name, kwargs)}

                    gaia_tool["function"] = custom_wrapper
                    _TOOL_REGISTRY[gaia_tool["name"]] = gaia_tool

        agent = make_agent(CustomAgent)
        agent.connect_mcp_server("demo", demo_server)
        assert _TOOL_REGISTRY["mcp_demo_echo"]["function"](text="hi")["wrapped"]["content"][0]["text"] == "hi"

    def test_debug_mode(self, make_agent: MakeAgent, demo_server: Json, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logging.getLogger("gaia"), "handlers", [])

        class DebugAgent(PlainAgent):
            def __init__(self, **kwargs: Any) -> None:
                kwargs["debug"] = True
                super().__init__(**kwargs)
                self.connect_mcp_server("demo", demo_server)

        agent = make_agent(DebugAgent)
        assert agent._mcp_manager.debug is True
        assert agent.get_mcp_client("demo").debug is True
