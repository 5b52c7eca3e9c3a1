"""`MCPClient`: over mocks as in the specification, over a user's own transport, and what calls come to."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import ConfigError, InvalidResponse, JsonRpcError, NotConnected, ToolDenied
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.mcp.supervision.events import ServerState, ToolsChanged
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.transports.base import MCPTransport
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.clock import SystemClock
from tests.fake_transport import FakeTransport
from tests.recorder import Recorder
from tests.servers.answers import received, received_calls, text
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Server = Callable[..., Json]
Connect = Callable[..., MCPClient]


class TestOverMocks:
    """As the specification's test patterns have it."""

    @pytest.fixture
    def transport(self, mocker: MockerFixture) -> Any:
        transport = mocker.Mock(spec=MCPTransport)
        transport.connect.return_value = True
        transport.is_connected.return_value = True
        transport.send_request.return_value = {
            "result": {"tools": [{"name": "test_tool", "description": "Test", "inputSchema": {}}]}
        }
        return transport

    def test_a_new_client_knows_nothing_yet(self, transport: Any) -> None:
        client = MCPClient("test", transport, debug=False)
        assert transport.mock_calls == []
        assert client.name == "test"
        assert client.transport is transport
        assert client.debug is False
        assert client.server_info == {}
        assert client._tools is None

    def test_connect_shakes_hands_and_keeps_what_the_server_says(self, transport: Any) -> None:
        transport.send_request.return_value = {
            "result": {
                "protocolVersion": "2025-06-18",
                "serverInfo": {"name": "mock", "version": "2"},
                "capabilities": {"tools": {}},
                "instructions": "Be kind.",
            }
        }
        client = MCPClient("test", transport)
        assert client.connect() is True
        transport.connect.assert_called_once_with()
        method, params = transport.send_request.call_args.args
        assert method == "initialize"
        assert params["protocolVersion"] in HANDSHAKE_REVISIONS
        assert params["clientInfo"]["name"] == "GAIA MCP Client"
        assert params["capabilities"] == {}
        assert client.server_info == {"name": "mock", "version": "2"}
        assert client.protocol_version == "2025-06-18"
        assert client.capabilities == {"tools": {}}
        assert client.instructions == "Be kind."

    def test_connect_is_false_if_the_server_speaks_no_revision_of_ours(self, transport: Any) -> None:
        transport.send_request.return_value = {"result": {"protocolVersion": "1.1.0"}}
        client = MCPClient("test", transport)
        assert client.connect() is False
        assert "1.1.0" in str(client.last_error)
        transport.disconnect.assert_called_once_with()

    def test_the_version_of_the_first_interface_is_taken_for_the_oldest_revision(self, transport: Any) -> None:
        transport.send_request.return_value = {"result": {"protocolVersion": "1.0.0", "serverInfo": {"name": "old"}}}
        client = MCPClient("test", transport)
        assert client.connect() is True
        assert client.server_info == {"name": "old"}
        assert client.protocol_version == HANDSHAKE_REVISIONS[-1]

    def test_tools_may_be_assigned(self, transport: Any) -> None:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        client = MCPClient("test", transport, tool_filter=ToolFilter(deny=["delete_file"]))
        client._tools = [MCPTool("read_file", "Read", schema), MCPTool("delete_file", "Delete", {})]
        assert [tool.name for tool in client.list_tools()] == ["read_file"]
        transport.send_request.assert_not_called()
        transport.send_request.return_value = {"error": {"code": -32602, "message": "path is required"}}
        refused = client.call_tool("read_file", {"file": "x"})
        assert "Expected tool schema" in refused["error"]
        assert '"required"' in refused["error"]
        with pytest.raises(ToolDenied):
            client.request("tools/call", {"name": "delete_file"})

    def test_tools_are_listed_once_and_then_cached_unless_that_failed(self, transport: Any) -> None:
        client = MCPClient("test", transport)
        assert client.connect()
        transport.send_request.reset_mock()
        listing = transport.send_request.return_value
        transport.send_request.return_value = {"error": {"code": -32601, "message": "what?"}}
        assert client.list_tools() == []
        transport.send_request.reset_mock()
        transport.send_request.return_value = listing
        tools = client.list_tools()
        assert [(tool.name, tool.description, tool.input_schema) for tool in tools] == [("test_tool", "Test", {})]
        assert client.list_tools() == tools
        transport.send_request.assert_called_once_with("tools/list")

    @pytest.mark.parametrize("arguments", [{"a": 1}, None], ids=["with arguments", "without"])
    def test_a_call_sends_name_and_arguments_and_returns_the_result_as_it_is(
        self, transport: Any, arguments: Json | None
    ) -> None:
        client = MCPClient("test", transport)
        client.connect()
        result = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": 1}, "custom": None}
        transport.send_request.return_value = {"result": result}
        assert client.call_tool("test_tool", arguments) == result
        transport.send_request.assert_called_with("tools/call", {"name": "test_tool", "arguments": arguments or {}})

    def test_disconnect_closes_the_transport_and_forgets_the_tools(self, transport: Any) -> None:
        client = MCPClient("test", transport)
        client.connect()
        client.list_tools()
        client.disconnect()
        transport.disconnect.assert_called_once_with()
        assert client._tools is None

    def test_is_connected_asks_the_transport(self, transport: Any) -> None:
        client = MCPClient("test", transport)
        assert client.is_connected() is True
        transport.is_connected.return_value = False
        assert client.is_connected() is False

    def test_a_wrapper_calls_its_tool_with_keyword_arguments_whatever_their_names(self, transport: Any) -> None:
        client = MCPClient("test", transport)
        client.connect()
        (tool,) = client.list_tools()
        wrapper = client.create_tool_wrapper(tool)
        transport.send_request.return_value = {"result": {"content": []}}
        arguments = {"a": "two", "self": 1, "tool": 2, "tool_name": 3, "timeout": 4, "not an identifier": 5}
        assert wrapper(**arguments) == {"content": []}
        transport.send_request.assert_called_with("tools/call", {"name": "test_tool", "arguments": arguments})
        assert wrapper.__name__ == "test_tool"
        assert wrapper.__doc__ == "Test"

    def test_refused_arguments_are_explained_with_the_schema(self, transport: Any) -> None:
        schema = {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "File path"},
                "encoding": {"type": "string", "description": "Encoding"},
            },
            "required": ["path"],
        }
        transport.send_request.return_value = {"result": {"tools": [{"name": "read_file", "inputSchema": schema}]}}
        client = MCPClient("test", transport)
        client.connect()
        client.list_tools()
        transport.send_request.return_value = {
            "error": {"code": -32602, "message": "Invalid params: missing required parameter 'path'"}
        }
        outcome = client.call_tool("read_file", {"encoding": "utf-8"})
        assert outcome["error"] == (
            "MCP tool 'read_file' input validation failed.\n\n"
            "Error details:\nInvalid params: missing required parameter 'path'\n\n"
            f"Expected tool schema:\n{json.dumps(schema, indent=2)}\n\n"
            'Your arguments:\n{\n  "encoding": "utf-8"\n}'
        )
        assert outcome["error_type"] == "jsonrpc"
        assert outcome["code"] == -32602


class OwnTransport(MCPTransport):
    """What a user writes who reads the specification: four methods."""

    def __init__(self) -> None:
        self.connected = False
        self.threads: list[threading.Thread] = []

    def connect(self) -> bool:
        self.connected = True
        return True

    def disconnect(self) -> None:
        self.connected = False

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self.threads.append(threading.current_thread())
        if method == "tools/list":
            return {"result": {"tools": [{"name": "shout"}, {"name": "secret"}]}}
        if method == "tools/call":
            assert params is not None
            return {"result": {"content": [{"type": "text", "text": params["arguments"]["text"].upper()}]}}
        return {"result": {"capabilities": {"tools": {}}}}

    def is_connected(self) -> bool:
        return self.connected


class TestOverAnOwnTransport:
    def test_it_cannot_get_another_configuration(self) -> None:
        with MCPClient("own", OwnTransport()) as client:
            for successor in (MCPClient("own", OwnTransport()), MCPClient("own", StdioTransport("true"))):
                error = client._engine.reconfigure(successor._engine)
                assert error is not None
                assert "'own'" in error.message
            client._engine.session.wake()
            assert client.is_connected()

    def test_calls_run_in_the_callers_thread(self) -> None:
        transport = OwnTransport()
        with MCPClient("own", transport) as client:
            assert [tool.name for tool in client.list_tools()] == ["shout", "secret"]
            assert text(client.call_tool("shout", {"text": "hello"})) == "HELLO"
        assert set(transport.threads) == {threading.current_thread()}
        assert not transport.connected

    def test_futures_are_done_at_once(self) -> None:
        with MCPClient("own", OwnTransport()) as client:
            future = client.submit_tool("shout", {"text": "hello"})
            assert future.done()
            assert text(future.result()) == "HELLO"
            assert not future.cancel()

    def test_without_a_connection_futures_are_refused(self) -> None:
        with pytest.raises(NotConnected):
            MCPClient("own", OwnTransport()).submit_tool("shout", {})

    def test_filters_hold_here_too(self) -> None:
        transport = OwnTransport()
        with MCPClient("own", transport, tool_filter=ToolFilter(deny=["secret"])) as client:
            assert [tool.name for tool in client.list_tools()] == ["shout"]
            assert client.denied_tools == {"secret"}
            requests = len(transport.threads)
            assert client.call_tool("secret", {})["error_type"] == "denied"
            assert len(transport.threads) == requests


class TestMaking:
    def test_from_a_config(self) -> None:
        client = MCPClient.from_config(
            "files", {"command": "npx", "args": ["-y", "server", "/tmp"], "env": {"TOKEN": "${TOKEN}"}}, timeout=60
        )
        assert client.name == "files"
        assert isinstance(client.transport, StdioTransport)
        assert client.transport.command == "npx"
        assert client.transport.args == ["-y", "server", "/tmp"]
        assert client.transport.env == {"TOKEN": "${TOKEN}"}
        assert client.transport.timeout == 60
        assert client.state is ServerState.CREATED

    def test_the_config_knows_the_timeout_better_than_the_caller(self) -> None:
        client = MCPClient.from_config("files", {"command": "npx", "timeout": 5}, timeout=60)
        assert isinstance(client.transport, StdioTransport)
        assert client.transport.timeout == 5

    @pytest.mark.parametrize("config", [{}, {"args": ["x"]}, {"command": ""}, {"command": " "}])
    def test_a_config_without_a_command_is_refused(self, config: Json) -> None:
        with pytest.raises(ValueError, match="command"):
            MCPClient.from_config("files", config)

    def test_a_config_with_a_url_makes_a_transport_over_http(self) -> None:
        client = MCPClient.from_config("files", {"url": "https://example.com/mcp", "timeout": 5})
        assert isinstance(client.transport, HttpTransport)
        assert (client.transport.url, client.transport.timeout) == ("https://example.com/mcp", 5)

    def test_from_a_command_line(self) -> None:
        client = MCPClient.from_command("files", 'npx -y "some server" /tmp', timeout=7)
        assert isinstance(client.transport, StdioTransport)
        assert client.transport.command == "npx"
        assert client.transport.args == ["-y", "some server", "/tmp"]
        assert client.transport.timeout == 7

    @pytest.mark.parametrize("command", ["", "server | tee log", "server && other", "$(server)"])
    def test_a_command_line_that_needs_a_shell_is_refused(self, command: str) -> None:
        with pytest.raises(ConfigError):
            MCPClient.from_command("files", command)


class TestCalling:
    def test_the_result_is_what_the_server_sent(self, fault_server: Server, connect: Connect) -> None:
        result = {
            "content": [{"type": "text", "text": "ü"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}],
            "structuredContent": {"deep": [1, None, {"x": True}]},
            "isError": True,
            "_meta": {"vendor/key": 1},
            "unknown": "kept",
        }
        client = connect(fault_server(faults=[{"tool": "echo", "result": result}]))
        assert client.call_tool("echo", {"text": "hi"}) == result

    def test_arguments_arrive_as_they_are(self, fault_server: Server, connect: Connect, tmp_path: Path) -> None:
        client = connect(fault_server(state_file=tmp_path / "state"))
        arguments = {"text": "ünï\u2028\n\0", "big": 2**80, "nested": {"list": [1.5, None, False]}}
        client.call_tool("echo", arguments)
        assert read_state(tmp_path / "state").calls[0].arguments == arguments

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            *((arguments, "dict") for arguments in ([1], "text", 5)),
            *(({"text": value}, "JSON") for value in (object(), {1, 2}, b"bytes")),
        ],
    )
    def test_arguments_that_are_no_dict_or_no_json_are_a_mistake(
        self, fault_server: Server, connect: Connect, arguments: Any, said: str
    ) -> None:
        client = connect(fault_server())
        for call in (client.call_tool, client.submit_tool):
            with pytest.raises(ValueError, match=said):
                call("echo", arguments)
        assert client.status.in_flight == 0

    def test_a_name_that_is_no_string_is_a_mistake(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        with pytest.raises(ValueError, match="name"):
            client.call_tool(5, {})  # type: ignore[arg-type]

    def test_progress_is_reported_in_the_waiting_thread(self, fault_server: Server, connect: Connect) -> None:
        progress = [{"progress": 1}, {"progress": 2, "total": 3}, {"progress": 3, "total": 3, "message": "done"}]
        client = connect(fault_server(faults=[{"tool": "echo", "progress": progress}]))
        reports: list[Any] = []

        def report(*values: Any) -> None:
            reports.append((*values, threading.current_thread()))

        assert text(client.call_tool("echo", {"text": "hi"}, on_progress=report)) == "hi"
        here = threading.current_thread()
        assert reports == [(1, None, None, here), (2, 3, None, here), (3, 3, "done", here)]

    def test_any_request_can_be_made(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        assert client.request("ping") == {}
        with pytest.raises(JsonRpcError) as caught:
            client.request("no/such/method", {"a": 1})
        assert caught.value.code == -32601

    def test_ctrl_c_in_the_waiting_thread_tells_the_server(
        self, fault_server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}], state_file=tmp_path / "state"))

        def interrupt() -> None:
            assert wait_until(lambda: len(read_state(tmp_path / "state").calls) == 1)
            # Not while it writes: an interrupted write costs the connection.
            assert wait_until(lambda: sys._current_frames()[main].f_code is SystemClock.acquire.__code__)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.get_ident()
        with ThreadPoolExecutor(1) as threads:
            interrupted = threads.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.call_tool("echo", {"text": "hi"})
            interrupted.result(PATIENCE)
        assert [one for one in received(client) if one.get("method") == "notifications/cancelled"]
        assert client.status.in_flight == 0

    def test_ctrl_c_while_connecting_leaves_nothing_behind(self, fault_server: Server, tmp_path: Path) -> None:
        config = fault_server(faults=[{"on": "initialize", "hang": True}], state_file=tmp_path / "state")
        client = MCPClient.from_config("fault", config)

        def interrupt() -> None:
            assert wait_until(lambda: read_state(tmp_path / "state").starts == 1)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.get_ident()
        with ThreadPoolExecutor(1) as threads:
            interrupted = threads.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.connect()
            interrupted.result(PATIENCE)
        # The rest happens in the background; the leak check sees that it does.
        assert wait_until(lambda: client.state is ServerState.CLOSED)


class TestListingTools:
    @pytest.fixture
    def transport(self) -> FakeTransport:
        return FakeTransport()

    @pytest.fixture
    def client(self, transport: FakeTransport) -> Iterator[MCPClient]:
        client = MCPClient("fake", transport, protocol="handshake")
        assert client.connect()
        yield client
        client.disconnect()

    @pytest.mark.parametrize(("later", "rounds"), [("refresh", 50), ("announcement", 15)])
    def test_of_several_at_once_the_one_that_was_requested_last_counts(
        self, client: MCPClient, transport: FakeTransport, later: str, rounds: int
    ) -> None:
        def names() -> list[str]:
            return [tool.name for tool in client._tools or []]

        channel = transport.channel()
        channel.take_over("tools/list")
        with ThreadPoolExecutor(2) as threads:
            for number in range(rounds):
                new = [f"new-{number}"]
                asked = len(channel.requests("tools/list"))
                older = threads.submit(client.list_tools, refresh=True)
                first = channel.wait_for("tools/list", asked + 1)
                if later == "refresh":
                    newer = threads.submit(client.list_tools, refresh=True)
                else:
                    channel.notify("notifications/tools/list_changed", {})
                second = channel.wait_for("tools/list", asked + 2)
                channel.answer(second, {"tools": [{"name": new[0]}]})
                if later == "refresh":
                    assert [tool.name for tool in newer.result(PATIENCE)] == new
                assert wait_until(lambda new=new: names() == new)  # type: ignore[misc]
                channel.answer(first, {"tools": [{"name": f"old-{number}"}]})
                assert [tool.name for tool in older.result(PATIENCE)] == new
                assert names() == new


class TestErrorTypes:
    """`call_tool` returns a dict for whatever goes wrong."""

    def test_jsonrpc(self, fault_server: Server, connect: Connect) -> None:
        error = {"code": -32000, "message": "no", "data": {"why": 1}}
        client = connect(fault_server(faults=[{"tool": "echo", "error": error}]))
        assert client.call_tool("echo", {"text": "hi"}) == {
            "error": "no",
            "error_type": "jsonrpc",
            "delivery": "unknown",
            "code": -32000,
            "data": {"why": 1},
        }

    def test_the_timeout_of_the_config(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]), timeout=0.3)
        assert client.call_tool("echo", {"text": "hi"})["error_type"] == "timeout"

    def test_server_crashed(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "crash": "before_answer", "exit_code": 7}]))
        outcome = client.call_tool("echo", {"text": "hi"})
        assert (outcome["error_type"], outcome["delivery"]) == ("server_crashed", "unknown")
        assert "exited with code 7" in outcome["error"]

    def test_invalid_response(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "result": [1, 2]}]))
        outcome = client.call_tool("echo", {"text": "hi"})
        assert (outcome["error_type"], outcome["delivery"]) == ("invalid_response", "unknown")

    def test_refused_arguments_of_a_tool_that_is_not_listed_are_not(
        self, fault_server: Server, connect: Connect
    ) -> None:
        outcome = connect(fault_server()).call_tool("unlisted", {})
        assert outcome["error"] == "unknown tool 'unlisted'"
        assert outcome["code"] == -32602


class TestFilters:
    def test_a_tool_that_is_denied_or_not_allowed_is_not_listed(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(), disabledTools=["echo", "s*"])
        assert {"echo", "sleep", "start"}.isdisjoint(tool.name for tool in client.list_tools())
        assert client.denied_tools == {"echo", "sleep", "start"}
        assert client.status.tool_count == len(client.list_tools())
        client = connect(fault_server(), enabledTools=["pid", "received"])
        assert [tool.name for tool in client.list_tools()] == ["pid", "received"]
        assert client.call_tool("echo", {"text": "hi"})["error_type"] == "denied"

    def test_a_denied_tool_never_reaches_the_server_however_it_is_called(
        self, fault_server: Server, connect: Connect
    ) -> None:
        client = connect(fault_server(), disabledTools=["echo"])
        arguments = {"text": "hi"}
        assert client.call_tool("echo", arguments)["error_type"] == "denied"
        assert client.create_tool_wrapper(MCPTool("echo", "", {}))(**arguments)["error_type"] == "denied"
        with pytest.raises(ToolDenied):
            client.submit_tool("echo", arguments)
        with pytest.raises(ToolDenied):
            client.request("tools/call", {"name": "echo", "arguments": arguments})
        for name in (None, ["echo"], {"name": "echo"}):
            with pytest.raises(ValueError, match="name"):
                client.request("tools/call", {"name": name, "arguments": arguments})
        with pytest.raises(ValueError, match="name"):
            client.request("tools/call")
        assert received_calls(client) == ["received"]

    def test_a_tool_that_appears_later_is_denied_too(self, fault_server: Server, connect: Connect) -> None:
        change = {"tool": "pid", "change_tools": [{"name": "delete_all"}, {"name": "get_all"}]}
        client = connect(fault_server(faults=[change]), disabledTools=["delete_*"])
        events = Recorder()
        client.subscribe(events)
        client.call_tool("pid")
        events.wait_for(ToolsChanged, added=("get_all",))
        assert client.denied_tools == {"delete_all"}


class TestBesidesTools:
    """With a server that has resources and prompts."""

    def test_resources(self, feature_server: Json, connect: Connect) -> None:
        client = connect(feature_server)
        resources = client.list_resources()
        assert resources
        assert client.read_resource(resources[0]["uri"])["contents"][0]["uri"] == resources[0]["uri"]
        assert isinstance(client.list_resource_templates(), list)

    def test_prompts(self, feature_server: Json, connect: Connect) -> None:
        client = connect(feature_server)
        (prompt, *_) = client.list_prompts()
        arguments = {argument["name"]: "danish" for argument in prompt.get("arguments", [])}
        assert client.get_prompt(prompt["name"], arguments)["messages"]

    def test_what_a_server_does_not_offer_raises(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        for ask in (client.list_resources, client.list_prompts, lambda: client.complete({}, {})):
            with pytest.raises(JsonRpcError, match="unknown method"):
                ask()
        with pytest.raises(InvalidResponse):
            connect(fault_server(faults=[{"on": "resources/list", "result": {}}])).list_resources()
