"""The tests of the MCPAgent specification, as it prints them."""

# ruff: noqa: F841, PT011, PT012 - the text is the specification's; only its layout is ours

import pytest

from gaia.agents.base import Agent, MCPAgent


class TestMCPAgent(MCPAgent, Agent):
    """Test agent for MCPAgent base class."""

    def _get_system_prompt(self):
        return "Test MCP agent"

    def _create_console(self):
        from gaia import SilentConsole

        return SilentConsole()

    def _register_tools(self):
        pass

    def get_mcp_tool_definitions(self):
        return [
            {
                "name": "test-tool",
                "description": "Test tool",
                "inputSchema": {"type": "object", "properties": {"param": {"type": "string"}}, "required": ["param"]},
            }
        ]

    def execute_mcp_tool(self, tool_name, arguments):
        if tool_name == "test-tool":
            return {"result": arguments["param"].upper()}
        raise ValueError(f"Unknown tool: {tool_name}")


def test_mcp_agent_can_be_imported():
    """Verify MCPAgent can be imported."""
    from gaia.agents.base import MCPAgent

    assert MCPAgent is not None


def test_mcp_agent_is_abstract():
    """Test MCPAgent requires implementation of abstract methods."""
    with pytest.raises(TypeError):
        # Cannot instantiate without implementing abstract methods
        class IncompleteAgent(MCPAgent, Agent):
            def _get_system_prompt(self):
                return "Test"

            def _create_console(self):
                from gaia import SilentConsole

                return SilentConsole()

            def _register_tools(self):
                pass

            # Missing: get_mcp_tool_definitions, execute_mcp_tool

        agent = IncompleteAgent(silent_mode=True)


def test_get_mcp_tool_definitions():
    """Test tool definitions retrieval."""
    agent = TestMCPAgent(silent_mode=True)
    tools = agent.get_mcp_tool_definitions()

    assert isinstance(tools, list)
    assert len(tools) == 1
    assert tools[0]["name"] == "test-tool"
    assert "inputSchema" in tools[0]


def test_execute_mcp_tool():
    """Test tool execution."""
    agent = TestMCPAgent(silent_mode=True)

    result = agent.execute_mcp_tool("test-tool", {"param": "hello"})

    assert result["result"] == "HELLO"


def test_execute_unknown_tool():
    """Test unknown tool raises ValueError."""
    agent = TestMCPAgent(silent_mode=True)

    with pytest.raises(ValueError) as exc_info:
        agent.execute_mcp_tool("nonexistent-tool", {})

    assert "Unknown tool" in str(exc_info.value)


def test_get_mcp_prompts_default():
    """Test default prompts (empty)."""
    agent = TestMCPAgent(silent_mode=True)
    prompts = agent.get_mcp_prompts()

    assert isinstance(prompts, list)
    assert len(prompts) == 0


def test_get_mcp_prompts_custom():
    """Test custom prompts."""

    class CustomAgent(TestMCPAgent):
        def get_mcp_prompts(self):
            return [{"name": "custom-prompt", "description": "Custom prompt"}]

    agent = CustomAgent(silent_mode=True)
    prompts = agent.get_mcp_prompts()

    assert len(prompts) == 1
    assert prompts[0]["name"] == "custom-prompt"


def test_get_mcp_resources_default():
    """Test default resources (empty)."""
    agent = TestMCPAgent(silent_mode=True)
    resources = agent.get_mcp_resources()

    assert isinstance(resources, list)
    assert len(resources) == 0


def test_get_mcp_resources_custom():
    """Test custom resources."""

    class CustomAgent(TestMCPAgent):
        def get_mcp_resources(self):
            return [{"uri": "test://resource", "name": "Test Resource"}]

    agent = CustomAgent(silent_mode=True)
    resources = agent.get_mcp_resources()

    assert len(resources) == 1
    assert resources[0]["uri"] == "test://resource"


def test_get_mcp_server_info_default():
    """Test default server info."""
    agent = TestMCPAgent(silent_mode=True)
    info = agent.get_mcp_server_info()

    assert "name" in info
    assert "version" in info
    assert "TestMCPAgent" in info["name"]
    assert info["version"] == "2.0.0"


def test_get_mcp_server_info_custom():
    """Test custom server info."""

    class CustomAgent(TestMCPAgent):
        def get_mcp_server_info(self):
            return {"name": "Custom MCP Server", "version": "3.0.0", "description": "Custom server"}

    agent = CustomAgent(silent_mode=True)
    info = agent.get_mcp_server_info()

    assert info["name"] == "Custom MCP Server"
    assert info["version"] == "3.0.0"
    assert info["description"] == "Custom server"


def test_multiple_tools():
    """Test agent with multiple tools."""

    class MultiToolAgent(MCPAgent, Agent):
        def _get_system_prompt(self):
            return "Multi-tool agent"

        def _create_console(self):
            from gaia import SilentConsole

            return SilentConsole()

        def _register_tools(self):
            pass

        def get_mcp_tool_definitions(self):
            return [
                {"name": "tool-1", "description": "Tool 1", "inputSchema": {}},
                {"name": "tool-2", "description": "Tool 2", "inputSchema": {}},
                {"name": "tool-3", "description": "Tool 3", "inputSchema": {}},
            ]

        def execute_mcp_tool(self, tool_name, arguments):
            if tool_name in ["tool-1", "tool-2", "tool-3"]:
                return {"tool": tool_name}
            raise ValueError(f"Unknown tool: {tool_name}")

    agent = MultiToolAgent(silent_mode=True)
    tools = agent.get_mcp_tool_definitions()

    assert len(tools) == 3
    assert agent.execute_mcp_tool("tool-1", {})["tool"] == "tool-1"
    assert agent.execute_mcp_tool("tool-2", {})["tool"] == "tool-2"
    assert agent.execute_mcp_tool("tool-3", {})["tool"] == "tool-3"


def test_inheritance_with_api_agent():
    """Test multiple inheritance with ApiAgent."""
    from gaia.agents.base import ApiAgent

    class DualAgent(MCPAgent, ApiAgent, Agent):
        def _get_system_prompt(self):
            return "Dual agent"

        def _create_console(self):
            from gaia import SilentConsole

            return SilentConsole()

        def _register_tools(self):
            pass

        def get_mcp_tool_definitions(self):
            return [{"name": "test", "inputSchema": {}}]

        def execute_mcp_tool(self, tool_name, arguments):
            return {"status": "ok"}

    agent = DualAgent(silent_mode=True)

    assert isinstance(agent, MCPAgent)
    assert isinstance(agent, ApiAgent)
    assert isinstance(agent, Agent)

    # MCP methods work
    tools = agent.get_mcp_tool_definitions()
    assert len(tools) > 0

    # API methods work
    model_id = agent.get_model_id()
    assert isinstance(model_id, str)
