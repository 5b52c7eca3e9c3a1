from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.agents.base.tools import ToolNotFound, resolve_tool_name
from gaia.mcp.agent_tools import (
    RegisteredTools,
    check_entry,
    checked,
    connected_line,
    definitions_of,
    load_summary,
    put_over_files,
    with_worded_response,
)
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools import naming
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_result import ToolResult

Registry = dict[str, dict[str, Any]]


def definitions(server: str, *tools: str) -> list[dict[str, Any]]:
    return [MCPTool(tool, "", {}).to_gaia_format(server) for tool in tools]


def put(owner: RegisteredTools, registry: Registry, server: str, *tools: str) -> None:
    owner.replace(registry, server, owner.ticket(), definitions(server, *tools))


def table(registry: Registry) -> dict[str, tuple[str, str]]:
    return {key: (entry["_mcp_server"], entry["_mcp_tool_name"]) for key, entry in registry.items()}


class TestNames:
    @pytest.mark.parametrize("first", [("a", "b_c"), ("a_b", "c")])
    def test_a_name_belongs_to_the_server_with_the_longest_name(self, first: tuple[str, str]) -> None:
        pairs = sorted([("a", "b_c"), ("a_b", "c")], key=lambda pair: pair != first)
        registry: Registry = {}
        owner = RegisteredTools()
        for server, tool in pairs:
            put(owner, registry, server, tool)
        assert table(registry) == {naming.disambiguated("a", "b_c"): ("a", "b_c"), "mcp_a_b_c": ("a_b", "c")}
        assert all(entry["name"] == key for key, entry in registry.items())

    def test_also_while_that_server_is_gone_or_has_never_been_there(self) -> None:
        registry: Registry = {}
        owner = RegisteredTools()
        owner.expect(["a_b", "a_x"])
        put(owner, registry, "a_b", "c")
        put(owner, registry, "a", "b_c", "x_y")
        owner.remove(registry, "a_b")
        assert table(registry) == {naming.disambiguated("a", tool): ("a", tool) for tool in ("b_c", "x_y")}

    @pytest.mark.parametrize(
        "asked",
        [
            "mcp_files_read",
            "files_read",
            "FILES_READ",
            "mcp_Files_read",
            "mcp_x_files_list",
            "x_files_list",
            "Mcp_read",
        ],
    )
    def test_no_form_of_a_name_leads_to_another_server(self, asked: str) -> None:
        """Models leave out parts of names; the servers here chose the names of their tools so that this helps them."""
        registry: Registry = {"files_read": {"name": "files_read"}} if asked == "mcp_files_read" else {}
        owner = RegisteredTools()
        owner.expect(["files", "x_files", "read"])
        put(owner, registry, "files", "read")
        put(owner, registry, "x", "files_read", "mcp_files_read", "files_list", "mcp_read")
        put(owner, registry, "mcp", "files_read", "read")
        owner.remove(registry, "files")
        with pytest.raises(ToolNotFound):
            resolve_tool_name(asked, registry)

    def test_a_tool_answers_to_the_short_forms_that_are_its_own(self) -> None:
        registry: Registry = {}
        owner = RegisteredTools()
        owner.expect(["time_zone", "now"])
        put(owner, registry, "time", "time_now", "now")
        assert resolve_tool_name("now", registry) == "mcp_time_now"
        assert resolve_tool_name("time_now", registry) == "mcp_time_now"
        assert resolve_tool_name("TIME_TIME_NOW", registry) == "mcp_time_time_now"

    def test_a_native_tool_keeps_its_name(self) -> None:
        native = {"name": "mcp_a_b"}
        registry: Registry = {"mcp_a_b": native}
        owner = RegisteredTools()
        put(owner, registry, "a", "b")
        assert registry.pop("mcp_a_b") is native
        assert table(registry) == {naming.disambiguated("a", "b"): ("a", "b")}

    def test_a_tool_whose_names_are_all_taken_is_left_out(self) -> None:
        registry: Registry = {"mcp_a_b": {}, naming.disambiguated("a", "b"): {}}
        put(RegisteredTools(), registry, "a", "b", "c")
        assert [key for key, entry in registry.items() if entry] == ["mcp_a_c"]

    def test_the_names_are_those_that_the_manager_gives(self) -> None:
        pairs = [("a", "b_c"), ("a_b", "c"), ("a", "x"), ("ä", "x"), ("a", "y" * 100)]
        registry: Registry = {}
        owner = RegisteredTools()
        for server in dict.fromkeys(server for server, _ in pairs):
            put(owner, registry, server, *(tool for name, tool in pairs if name == server))
        assert table(registry) == naming.assign(pairs, {"a", "a_b", "ä"})


class TestOwnership:
    def test_the_tools_of_a_server_are_replaced_as_a_whole(self) -> None:
        registry: Registry = {}
        owner = RegisteredTools()
        put(owner, registry, "a", "x", "y")
        put(owner, registry, "b", "x")
        put(owner, registry, "a", "y", "z")
        assert list(registry) == ["mcp_a_y", "mcp_b_x", "mcp_a_z"]

    def test_a_tool_that_stays_is_there_at_every_moment(self) -> None:
        class Watched(dict[str, dict[str, Any]]):
            def __delitem__(self, key: str) -> None:
                deleted.append(key)
                super().__delitem__(key)

        deleted: list[str] = []
        registry = Watched()
        owner = RegisteredTools()
        put(owner, registry, "a", "x", "y")
        put(owner, registry, "a", "y", "z")
        assert deleted == ["mcp_a_x"]

    def test_an_agent_removes_only_its_own_tools(self) -> None:
        registry: Registry = {}
        one, other = RegisteredTools(), RegisteredTools()
        put(one, registry, "a", "x", "y")
        put(other, registry, "a", "y")
        one.remove(registry, "a")
        assert list(registry) == ["mcp_a_y"]
        other.remove_all(registry)
        assert registry == {}

    def test_removing_takes_what_the_agent_itself_registered_for_the_server(self) -> None:
        registry: Registry = {"mcp_a_x": {"_mcp_server": "a"}, "mcp_b_x": {"_mcp_server": "b"}, "x": {}}
        RegisteredTools().remove(registry, "a")
        assert list(registry) == ["mcp_b_x", "x"]

    def test_old_news_does_not_replace_newer(self) -> None:
        registry: Registry = {}
        owner = RegisteredTools()
        old = owner.ticket()
        put(owner, registry, "a", "new")
        owner.replace(registry, "a", old, definitions("a", "old"))
        owner.replace(registry, "b", old, definitions("b", "x"))
        assert list(registry) == ["mcp_a_new", "mcp_b_x"]

    def test_nothing_comes_back_after_a_removal(self) -> None:
        registry: Registry = {}
        owner = RegisteredTools()
        asked_before = owner.ticket()
        owner.remove(registry, "a")
        owner.replace(registry, "a", asked_before, definitions("a", "x"))
        assert registry == {}


class TestWordedResponse:
    def test_a_result_is_a_success_with_an_instruction(self) -> None:
        data = {"content": [{"type": "text", "text": "file contents..."}]}
        assert with_worded_response("read_file", lambda path: data | {"path": path})(path="/a") == {
            "status": "success",
            "message": "Tool 'read_file' returned data",
            "data": data | {"path": "/a"},
            "instruction": "Parse this JSON data and provide a human-readable summary. "
            "Your answer must be a plain text string, not a JSON object.",
        }

    def test_an_error_is_an_error(self) -> None:
        data = {"error": "File not found", "delivery": "unknown"}
        assert with_worded_response("t", lambda: data)() == {"status": "error", "error": "File not found", "data": data}

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            ([{"type": "text", "text": "no such file"}], "no such file"),
            ([{"type": "text", "text": "a"}, {"type": "image", "data": ""}, {"type": "text", "text": "b"}], "a\nb"),
            ([], "the tool reported an error without a text"),
            (None, "the tool reported an error without a text"),
            (["odd"], "the tool reported an error without a text"),
        ],
    )
    @pytest.mark.parametrize("kind", [dict, ToolResult])
    def test_a_result_that_says_it_is_an_error_is_one(self, content: Any, error: str, kind: type[Any]) -> None:
        worded = with_worded_response("t", lambda: kind({"content": content, "isError": True}))()
        assert (worded["status"], worded["error"], worded["data"]["error"]) == ("error", error, error)

    def test_the_data_of_an_error_is_its_text_as_specified(self) -> None:
        text = "File not found: /nonexistent"
        answer = ToolResult({"content": [{"type": "text", "text": text}], "isError": True})
        worded = with_worded_response("read_file", lambda: answer)()
        assert worded == {"status": "error", "error": text, "data": {"error": text}}

    def test_what_the_text_of_an_error_does_not_say_is_in_the_data_too(self) -> None:
        content = [{"type": "text", "text": "no"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]
        answer = ToolResult({"content": content, "structuredContent": {"line": 3}, "isError": True})
        data = with_worded_response("t", lambda: answer)()["data"]
        assert data == {"error": "no", "content": content, "structuredContent": {"line": 3}}

    @pytest.mark.parametrize(
        "members",
        [
            {"content": [{"type": "text", "text": "hi"}]},
            {"content": [{"type": "text", "text": "hi"}], "isError": False, "structuredContent": {"a": 1}},
            {"structuredContent": {"a": 1}},
            {"error": "gone", "error_type": "server_crashed", "delivery": "unknown"},
        ],
    )
    def test_models_read_nothing_of_what_every_result_has(self, members: dict[str, Any]) -> None:
        worded = with_worded_response("t", lambda: ToolResult(members))()
        plain = with_worded_response("t", lambda: dict(members))()
        assert json.dumps(worded) == json.dumps(plain)
        assert dict(worded["data"]) == members

    @pytest.mark.parametrize("flag", [False, None, "false"])
    def test_any_other_flag_is_a_success(self, flag: Any) -> None:
        assert with_worded_response("t", lambda: {"content": [], "isError": flag})()["status"] == "success"

    @pytest.mark.parametrize("answer", ["text", ["a", "b"], None, 3])
    def test_an_answer_that_is_no_dict_passes_through(self, answer: Any) -> None:
        assert with_worded_response("t", lambda: answer)() is answer

    def test_a_tool_may_have_parameters_of_any_name(self) -> None:
        arguments = {"self": 1, "function": 2, "tool_name": 3, "name": 4}
        assert with_worded_response("t", lambda **given: given)(**arguments)["data"] == arguments


def test_the_definition_of_a_tool_keeps_what_its_server_says() -> None:
    tool = MCPTool("now", "Tells the time", {"type": "object", "x": 1}, annotations={"readOnlyHint": True})
    client = Mock(list_tools=lambda: [tool], create_tool_wrapper=lambda _: lambda **arguments: {"content": arguments})
    client.name = "time"
    (entry,) = definitions_of(client)
    assert (entry["name"], entry["description"]) == ("mcp_time_now", "[MCP:time] Tells the time")
    assert (entry["_mcp_input_schema"], entry["_mcp_annotations"]) == (tool.input_schema, {"readOnlyHint": True})
    assert entry["function"](zone="UTC")["data"] == {"content": {"zone": "UTC"}}


@pytest.mark.parametrize("entry", [{"command": "uvx"}, {"url": "http://localhost/mcp"}])
def test_a_command_or_a_url_will_do(entry: dict[str, Any]) -> None:
    check_entry("time", entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [(None, "got NoneType"), ("uvx", "got str"), ({}, "needs a 'command'"), ({"command": ""}, "needs a 'command'")],
)
def test_anything_else_is_a_mistake_that_is_explained(entry: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_entry("time", entry)


def test_all_servers_of_a_constructor_are_checked_as_those_of_a_file_are() -> None:
    assert checked(None) == {}
    good = {"command": "uvx", "env": {"TOKEN": "${NOT_SET_YET}"}}
    assert checked({"time": good}) == {"time": good}
    with pytest.raises(ValueError, match=r"server 'git': .*timeout"):
        checked({"time": good, "git": {"command": "uvx", "timeout": "long"}})


def test_servers_are_named() -> None:
    with pytest.raises(ValueError, match="expected servers by name"):
        checked([{"command": "uvx"}])  # type: ignore[arg-type]


def test_declared_servers_count_and_nothing_is_written(tmp_path: Any) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"time": {"command": "old"}, "git": {"command": "git"}}}')
    before = file.read_bytes()
    config = put_over_files(MCPConfig(file), {"time": {"command": "new"}}, "MyAgent")
    assert config.get_servers() == {"time": {"command": "new"}, "git": {"command": "git"}}
    assert file.read_bytes() == before


def test_the_log_says_which_servers_come_from_which_file(
    home: Path, log_events: Callable[[str], list[dict[str, Any]]]
) -> None:
    user_file, local = home / ".gaia" / "mcp_servers.json", Path.cwd() / "mcp_servers.json"
    user_file.parent.mkdir()
    user_file.write_text('{"mcpServers": {"time": {"command": "uvx"}, "git": {"command": "uvx"}, "db": 5}}')
    local.write_text('{"mcpServers": {"git": {"command": "git"}}}')
    put_over_files(MCPConfig(), {"own": {"command": "x"}}, "MyAgent")
    assert log_events("mcp_servers_configured") == [
        {
            "agent": "MyAgent",
            "servers": {str(user_file): ["time", "db"], str(local): ["git"], "code": ["own"]},
            "overrides": ["git"],
        }
    ]


def a_client(name: str, *tools: str) -> Any:
    client = Mock(list_tools=Mock(return_value=[MCPTool(tool, "", {}) for tool in tools]))
    client.name = name
    return client


@pytest.mark.parametrize(
    ("tools", "line"),
    [
        ([], "✓ s (0 tools)"),
        (["now"], "✓ s (1 tool): now"),
        (["now", "zones"], "✓ s (2 tools): now, zones"),
        (["a\nb"], "✓ s (1 tool): a b"),
    ],
)
def test_a_connected_server_is_shown_with_its_tools(tools: list[str], line: str) -> None:
    assert connected_line(a_client("s", *tools)) == line


def test_a_very_long_list_of_tools_is_cut() -> None:
    line = connected_line(a_client("s", *(f"t{number}" for number in range(150))))
    assert line.endswith("t98, t99, and 50 more")


def test_a_server_of_a_file_is_shown_with_the_file() -> None:
    assert connected_line(a_client("s", "now"), Path("/etc/s.json")) == f"✓ s from {Path('/etc/s.json')} (1 tool): now"


def test_each_server_that_is_not_disabled_has_a_line() -> None:
    clients = {"time": a_client("time", "now")}
    manager = Mock()
    manager.list_servers.return_value = ["time"]
    manager.get_client.side_effect = clients.get
    manager.config.get_servers.return_value = {"time": {}, "git": {}, "off": {"disabled": True}}
    manager.config.source_of.return_value = None
    manager.status.return_value = [
        ServerStatus(name="git", state=ServerState.FAILED, last_error="exited with code 1\n✓ bank (3 tools)"),
        ServerStatus(name="slow", state=ServerState.STARTING),
        ServerStatus(name="unusable", state=ServerState.FAILED, last_error="it has no command"),
    ]
    assert load_summary(manager).splitlines() == [
        "✓ time (1 tool): now",
        "✗ git failed to connect: exited with code 1",
        "  ✓ bank (3 tools)",
        "… slow is starting; its tools come when it is ready",
        "✗ unusable failed to connect: it has no command",
    ]


def test_where_nothing_is_configured_there_is_nothing_to_say() -> None:
    manager = Mock()
    manager.list_servers.return_value = []
    manager.config.get_servers.return_value = {}
    manager.status.return_value = []
    assert load_summary(manager) == ""
