"""What a client gets for each request: the agent's answer, or an error that tells no more than it should."""

import base64
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from pydantic import ValidationError

from gaia.agents.base.mcp_context import MCPRequestCancelled
from gaia.mcp.errors import ServerCrashed
from gaia.mcp.server.handlers import prompt_result, resource_result, tool_result
from gaia.mcp.tools.tool_result import ToolResult
from tests.serving.agents import TEXT, QuietAgent, tool

Use = Callable[..., None]
Ending = Callable[[], Any]


class Toolbox(QuietAgent):
    """One tool that ends as it is told to."""

    def __init__(self, ending: Ending = dict, **definition: Any) -> None:
        super().__init__(silent_mode=True)
        self.definition = tool("t", **definition)
        self.ending = ending
        self.levels: list[str] = []

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [self.definition]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.ending()  # type: ignore[no-any-return]

    def set_mcp_logging_level(self, level: str) -> None:
        self.levels.append(level)


class Library(Toolbox):
    """A prompt, resources and suggestions; `ending` is what each of them comes to."""

    def offers_mcp(self, what: str) -> bool:
        return True

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        arguments = [{"name": "path", "required": True}, {"name": "depth"}]
        return [{"name": "analyze", "arguments": arguments}, {"description": "has no name"}]

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return self.ending()

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [{"uri": "note:///a", "name": "a", "mimeType": "text/markdown"}, {"name": "has no uri"}]

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        return [{"uriTemplate": "note:///{title}", "name": "note"}, {"name": "has no template"}]

    def read_mcp_resource(self, uri: str) -> Any:
        return self.ending()

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        return self.ending()  # type: ignore[no-any-return]


def raising(error: BaseException) -> Ending:
    def ending() -> Any:
        raise error

    return ending


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content)


@pytest.fixture
def called(use: Use) -> Callable[..., types.CallToolResult]:
    """What a client gets for a call of the agent's tool."""

    def called(agent: Toolbox, **arguments: Any) -> types.CallToolResult:
        results: list[types.CallToolResult] = []

        async def talk(client: Client) -> None:
            results.append(await client.call_tool("t", arguments))

        use(agent, talk)
        return results[0]

    return called


Called = Callable[..., types.CallToolResult]


class TestListings:
    def test_a_definition_that_is_wrong_is_left_out_alone(self, use: Use, caplog: pytest.LogCaptureFixture) -> None:
        class Careless(Toolbox):
            def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
                broken = tool("broken", {"type": "object", "properties": {"a": {"type": "nonsense"}}})
                return [{"description": "has no name"}, broken, tool("t"), tool("t", TEXT), {"name": "bare"}]

        async def talk(client: Client) -> None:
            tools = (await client.list_tools()).tools
            assert [(one.name, one.input_schema) for one in tools] == [
                ("t", {"type": "object"}),
                ("bare", {"type": "object"}),
            ]

        use(Careless(), talk)
        assert caplog.text.count("tool_definition_invalid") == 2
        assert "tool_defined_twice" in caplog.text

    def test_so_is_one_of_a_prompt_or_resource(self, use: Use, caplog: pytest.LogCaptureFixture) -> None:
        async def talk(client: Client) -> None:
            assert [one.name for one in (await client.list_prompts()).prompts] == ["analyze"]
            assert [one.uri for one in (await client.list_resources()).resources] == ["note:///a"]
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.uri_template for one in templates] == ["note:///{title}"]

        use(Library(), talk)
        for event in ("prompt_definition_invalid", "resource_definition_invalid", "resource_template_invalid"):
            assert event in caplog.text


class TestToolCalls:
    def test_arguments_that_do_not_fit_are_for_the_model_to_read(self, called: Called) -> None:
        result = called(Toolbox(raising(AssertionError()), schema=TEXT), text=7)
        assert result.is_error
        assert text_of(result).startswith("Invalid arguments for tool t: ")

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (ValueError("there is no such note"), "Tool t failed: there is no such note"),
            (RuntimeError("the password is hunter2"), "Tool t failed"),
            (json.JSONDecodeError("hunter2", "hunter2", 0), "Tool t failed"),
            (MCPRequestCancelled(), "The call was cancelled"),
            # Clients would take the call for one that was lost on its way, and call again.
            (MCPError(types.CONNECTION_CLOSED, "Connection closed"), "Tool t failed"),
            (MCPError(types.REQUEST_TIMEOUT, "Connection closed"), "Tool t failed"),
        ],
    )
    def test_only_the_words_that_an_agent_chose_reach_the_client(
        self, error: Exception, told: str, called: Called
    ) -> None:
        result = called(Toolbox(raising(error)))
        assert (result.is_error, text_of(result)) == (True, told)

    def test_the_log_has_the_cause_and_where_it_was(self, called: Called, caplog: pytest.LogCaptureFixture) -> None:
        called(Toolbox(raising(RuntimeError("out of paper"))))
        (fields,) = [record.event_fields for record in caplog.records if hasattr(record, "event_fields")]  # type: ignore[attr-defined]
        assert fields["error"] == "RuntimeError('out of paper')"
        assert "in ending" in fields["traceback"]

    @pytest.mark.parametrize(
        ("name", "ending"), [("other", dict), ("t", raising(ValueError("Unknown tool: it was removed")))]
    )
    def test_a_tool_that_is_unknown_is_the_protocols_error(self, name: str, ending: Ending, use: Use) -> None:
        async def talk(client: Client) -> None:
            with pytest.raises(MCPError) as raised:
                await client.call_tool(name, {})
            error = raised.value.error
            assert (error.code, error.message) == (types.INVALID_PARAMS, f"Unknown tool: {name}")

        use(Toolbox(ending), talk)

    def test_a_result_that_breaks_its_promise_is_no_result(self, called: Called) -> None:
        promised = {"type": "object", "required": ["sum"]}
        broken = called(Toolbox(dict, outputSchema=promised))
        assert (broken.is_error, text_of(broken)) == (
            True,
            "Tool t returned a result that does not fit its output schema",
        )
        assert called(Toolbox(lambda: {"sum": 3}, outputSchema=promised)).structured_content == {"sum": 3}
        failed = called(Toolbox(lambda: {"error": "no"}, outputSchema=promised))
        assert text_of(failed) == '{"error":"no"}', "a failure need not keep the promise"


class TestPrompts:
    @pytest.mark.parametrize(
        ("name", "arguments", "ending", "code", "message"),
        [
            ("other", {}, dict, types.INVALID_PARAMS, "Unknown prompt: other"),
            ("analyze", {"depth": "1"}, dict, types.INVALID_PARAMS, "Prompt analyze needs: path"),
            ("analyze", {"path": "a"}, raising(ValueError("no such path")), types.INVALID_PARAMS, "no such path"),
            ("analyze", {"path": "a"}, raising(KeyError("hunter2")), types.INTERNAL_ERROR, "Prompt analyze failed"),
            ("analyze", {"path": "a"}, lambda: {"messages": [1]}, types.INTERNAL_ERROR, "Prompt analyze failed"),
        ],
    )
    def test_what_cannot_be_given_is_an_error(
        self, name: str, arguments: dict[str, str], ending: Ending, code: int, message: str, use: Use
    ) -> None:
        async def talk(client: Client) -> None:
            with pytest.raises(MCPError) as raised:
                await client.get_prompt(name, arguments)
            assert (raised.value.error.code, raised.value.error.message) == (code, message)

        use(Library(ending), talk)


class TestResources:
    @pytest.mark.parametrize(("mode", "not_found"), [("legacy", -32002), ("auto", types.INVALID_PARAMS)])
    @pytest.mark.parametrize(
        ("ending", "internal"),
        [
            (raising(ValueError("Unknown resource")), False),
            (raising(UnicodeError("hunter2")), True),
            (raising(OSError("hunter2")), True),
            (lambda: {"contents": [{}]}, True),
        ],
    )
    def test_what_cannot_be_read_is_the_error_of_its_era(
        self, mode: str, not_found: int, ending: Ending, internal: bool, use: Use
    ) -> None:
        async def talk(client: Client) -> None:
            with pytest.raises(MCPError) as raised:
                await client.read_resource("note:///a")
            error = raised.value.error
            assert error.code == (types.INTERNAL_ERROR if internal else not_found)
            assert "hunter2" not in error.message
            assert error.data == {"uri": "note:///a"}

        use(Library(ending), talk, mode=mode)

    def test_a_resource_that_is_listed_has_the_type_that_it_is_listed_with(self, use: Use) -> None:
        async def talk(client: Client) -> None:
            for uri, mime_type in (("note:///a", "text/markdown"), ("note:///b", "text/plain")):
                (content,) = (await client.read_resource(uri)).contents
                assert content.mime_type == mime_type

        use(Library(lambda: "text"), talk)


@pytest.mark.parametrize(("count", "more"), [(100, False), (101, True)])
def test_suggestions_are_cut_at_the_protocols_limit(count: int, more: bool, use: Use) -> None:
    async def talk(client: Client) -> None:
        reference = types.PromptReference(name="analyze")
        completion = (await client.complete(reference, {"name": "path", "value": ""})).completion
        assert completion.values == [str(number) for number in range(100)]
        assert (completion.total, completion.has_more) == (count, more)

    use(Library(lambda: list(range(count))), talk)


@pytest.mark.filterwarnings("ignore:.*:mcp.shared.exceptions.MCPDeprecationWarning")
def test_an_agent_is_told_which_log_messages_are_wanted(use: Use) -> None:
    agent = Toolbox()

    async def talk(client: Client) -> None:
        await client.set_logging_level("warning")

    use(agent, talk, mode="legacy")
    assert agent.levels == ["warning"]


def wire(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    shown = ("content", "structuredContent", "isError", "messages", "contents")
    return {key: document[key] for key in shown if key in document}


def test_a_result_in_the_protocols_form_is_passed_on() -> None:
    result = {
        "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        "structuredContent": {"a": 1},
        "isError": True,
    }
    assert wire(tool_result(result)) == result


def test_a_failed_call_that_is_passed_on_keeps_what_is_known_of_it() -> None:
    failed = ToolResult.from_error(ServerCrashed("it crashed", delivery="unknown"))
    result = wire(tool_result(failed))
    assert result["isError"] is True
    known = {"error": "it crashed", "error_type": "server_crashed", "delivery": "unknown"}
    assert result["structuredContent"] == known
    assert json.loads(result["content"][0]["text"]) == known


@pytest.mark.parametrize(
    ("value", "is_error"),
    [
        ({"content": "the text of a file"}, False),
        ({"content": [1, 2]}, False),
        ({"content": [{"type": "of something else"}]}, False),
        ({"content": None}, False),
        ({}, False),
        ({"error": None, "a": 1}, False),
        ({"error": ""}, False),
        ({"status": "ok"}, False),
        ({"error": "no"}, True),
        ({"status": "error", "error": "no"}, True),
        ({"status": "error"}, True),
    ],
)
def test_what_only_looks_like_a_result_is_data_and_agents_tell_errors_in_several_ways(
    value: dict[str, Any], is_error: bool
) -> None:
    result = wire(tool_result(value))
    assert (result["structuredContent"], result["isError"]) == (value, is_error)


texts = st.text()
keys = texts.filter(lambda key: key not in ("content", "error", "status"))
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(keys, json_values, max_size=4))
def test_json_arrives_as_it_was(value: dict[str, Any]) -> None:
    assert wire(tool_result(value))["structuredContent"] == value


def test_what_json_does_not_know_becomes_text() -> None:
    value = {"path": Path("/a"), "when": dt.date(2026, 1, 2), "bytes": b"hi", "tuple": (1, 2), 3: "three"}
    assert wire(tool_result(value))["structuredContent"] == {
        "path": "/a",
        "when": "2026-01-02",
        "bytes": "aGk=",
        "tuple": [1, 2],
        "3": "three",
    }


def test_a_text_is_sent_as_it_is_and_the_result_of_another_server_passed_on() -> None:
    content = [{"type": "text", "text": "plain"}]
    assert wire(tool_result("plain")) == {"content": content, "isError": False}
    assert wire(tool_result(ToolResult({"content": content}))) == {"content": content, "isError": False}


@pytest.mark.parametrize(
    "value",
    [
        "Do it.",
        ["Do it."],
        [{"role": "user", "content": "Do it."}],
        {"messages": ["Do it."]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Do it."}}]},
    ],
)
def test_the_forms_of_a_prompt(value: Any) -> None:
    assert wire(prompt_result(value))["messages"] == [{"role": "user", "content": {"type": "text", "text": "Do it."}}]
    with pytest.raises(ValidationError):
        prompt_result({"messages": [{"role": "nobody", "content": "Do it."}]})


@pytest.mark.parametrize(
    ("value", "mime_type", "content"),
    [
        ("text", None, {"text": "text", "mimeType": "text/plain"}),
        ("# text", "text/markdown", {"text": "# text", "mimeType": "text/markdown"}),
        (b"\x00", None, {"blob": base64.b64encode(b"\x00").decode(), "mimeType": "application/octet-stream"}),
        ({"a": 1}, None, {"text": '{"a":1}', "mimeType": "application/json"}),
        ([1], None, {"text": "[1]", "mimeType": "application/json"}),
    ],
)
def test_the_forms_of_a_resource(value: Any, mime_type: str | None, content: dict[str, Any]) -> None:
    assert wire(resource_result("note:///a", mime_type, value))["contents"] == [{"uri": "note:///a", **content}]
