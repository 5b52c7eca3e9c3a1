from __future__ import annotations

from typing import Any

import pytest

from gaia.adapters.anthropic import anthropic_tools
from gaia.adapters.openai import openai_tools
from gaia.adapters.results import (
    InvalidArguments,
    content_for_model,
    description_for_model,
    input_schema,
    name_for_model,
    parse_arguments,
    text_for_model,
)
from gaia.mcp import (
    CallTimeout,
    JsonRpcError,
    MCPClientManager,
    MCPTool,
    ServerCrashed,
    ServerUnavailable,
    ToolResult,
    UnknownTool,
)
from gaia.mcp.errors import MCPError, answered_error
from gaia.testing import FakeServer

REPEAT = "Do not repeat it"
PIXELS = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def result(*content: Any, **members: Any) -> ToolResult:
    return ToolResult({"content": list(content), "isError": False, **members})


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


class TestContent:
    def test_texts_and_images_stay_in_order(self) -> None:
        shown = content_for_model(result(text("before"), PIXELS, text("after")))

        assert shown == [text("before"), PIXELS, text("after")]

    def test_members_that_are_not_for_models_are_left_out(self) -> None:
        block = {**PIXELS, "annotations": {"audience": ["user"]}, "_meta": {"trace": "1"}}

        assert content_for_model(result(block)) == [PIXELS]

    def test_embedded_resources_are_texts_and_images_too(self) -> None:
        words = {"type": "resource", "resource": {"uri": "demo://a", "text": "words"}}
        image = {"type": "resource", "resource": {"uri": "demo://b", "blob": "AAAA", "mimeType": "image/png"}}

        assert content_for_model(result(words, image)) == [text("words"), PIXELS]

    def test_what_cannot_be_shown_is_named_with_its_size(self) -> None:
        audio = {"type": "audio", "data": "MTIzNDU=", "mimeType": "audio/wav"}
        file = {"type": "resource", "resource": {"uri": "demo://c", "blob": "AAAA", "mimeType": "application/zip"}}

        assert text_for_model(result(audio, file)) == (
            "[audio, audio/wav, 5 bytes]\n[resource, application/zip, demo://c, 3 bytes]"
        )

    def test_an_image_that_models_do_not_take_is_named(self) -> None:
        drawing = {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"}
        broken = {"type": "image", "data": "A", "mimeType": "image/png"}

        assert text_for_model(result(drawing, broken)) == "[image, image/svg+xml, 3 bytes]\n[image, image/png, 0 bytes]"

    @pytest.mark.parametrize(
        "block", [{**PIXELS, "mimeType": ["image/png"]}, {**PIXELS, "mimeType": {}}, {**PIXELS, "data": "%%%%"}]
    )
    def test_an_image_that_is_none_is_named(self, block: dict[str, Any]) -> None:
        assert text_for_model(result(block)).startswith("[image, ")
        assert content_for_model(result(block))[0]["type"] == "text"

    def test_empty_texts_are_left_out(self) -> None:
        assert content_for_model(result(text(""), PIXELS)) == [PIXELS]
        assert text_for_model(result(text(""))) == "(no content)"

    def test_a_link_is_given_with_its_address(self) -> None:
        link = {"type": "resource_link", "uri": "demo://greeting", "name": "greeting"}

        assert '"demo://greeting"' in text_for_model(result(link))

    def test_as_text_alone_an_image_is_named(self) -> None:
        assert text_for_model(result(text("one pixel"), PIXELS)) == "one pixel\n[image, image/png, 3 bytes]"

    def test_structured_content_is_shown_where_there_is_nothing_else(self) -> None:
        assert text_for_model(result(structuredContent={"height": 2})) == '{"height": 2}'
        assert text_for_model(result(text("two"), structuredContent={"height": 2})) == "two"

    def test_an_empty_result_says_so(self) -> None:
        assert text_for_model(result()) == "(no content)"

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "text"},
            {"type": "image"},
            {"type": "resource"},
            {"type": "resource", "resource": []},
            {"type": "new"},
        ],
    )
    def test_a_block_that_is_not_as_specified_is_shown_all_the_same(self, block: dict[str, Any]) -> None:
        assert text_for_model(result(block))


class TestFailures:
    def test_an_error_of_the_tool_is_its_text_and_its_images(self) -> None:
        failed = result(text("no such note"), PIXELS, isError=True)

        assert content_for_model(failed) == [text("Error: no such note"), PIXELS]

    def test_an_error_that_says_so_itself_is_not_called_one_again(self) -> None:
        assert text_for_model(result(text("Error executing tool"), isError=True)) == "Error executing tool"

    def test_an_error_without_a_text_has_one(self) -> None:
        assert text_for_model(result(isError=True)).startswith("Error: ")

    @pytest.mark.parametrize(
        "error", [ServerCrashed("it ended", delivery="unknown"), CallTimeout("too slow", delivery="unknown")]
    )
    def test_a_call_that_may_have_taken_effect_must_not_be_repeated(self, error: MCPError) -> None:
        shown = text_for_model(ToolResult.from_error(error))

        assert shown.startswith(f"Error: {error.message}\n")
        assert REPEAT in shown

    def test_a_call_of_a_safe_tool_may_be_repeated(self) -> None:
        failed = ToolResult.from_error(CallTimeout("too slow", delivery="unknown"))

        shown = text_for_model(failed, safe_to_repeat=True)

        assert REPEAT not in shown
        assert "may be repeated" in shown

    @pytest.mark.parametrize("error", [ServerUnavailable("it is down"), UnknownTool("no such tool")])
    def test_a_call_that_was_not_sent_had_no_effect(self, error: MCPError) -> None:
        shown = text_for_model(ToolResult.from_error(error))

        assert "had no effect" in shown
        assert REPEAT not in shown

    @pytest.mark.parametrize("code", [-32602, -32601, -32042])
    def test_a_call_that_the_server_rejected_may_be_made_in_another_way(self, code: int) -> None:
        shown = text_for_model(ToolResult.from_error(answered_error(code, "argument 'a' is missing")))

        assert shown == "Error: argument 'a' is missing"

    def test_an_internal_error_of_the_server_says_nothing_of_the_effect(self) -> None:
        assert REPEAT in text_for_model(ToolResult.from_error(JsonRpcError(-32603, "internal error")))

    def test_a_code_that_is_none_says_nothing_of_the_effect(self) -> None:
        shown = text_for_model(ToolResult({"error": "boo", "error_type": "jsonrpc", "code": [-32602]}))

        assert shown.startswith("Error: boo\n")
        assert REPEAT in shown

    def test_what_a_server_says_of_the_delivery_counts_for_nothing(self) -> None:
        answer = {"error": "lost", "delivery": "not_sent", "error_type": "server_crashed"}

        assert text_for_model(ToolResult.from_server(answer)) == "Error: lost"

    def test_an_error_of_the_tool_is_none_of_the_way(self) -> None:
        """It has the text as ``error``, too; the model is not told that the outcome is unknown."""
        assert (
            text_for_model(ToolResult.from_server(result(text("no such note"), isError=True))) == "Error: no such note"
        )


class TestNameAndDescription:
    def test_the_name_is_the_managers(self) -> None:
        assert name_for_model(MCPTool("now", "", {}, namespaced_name="mcp_time_now")) == "mcp_time_now"
        assert name_for_model(MCPTool("now", "", {})) == "now"

    def test_a_tool_without_a_description_has_its_title_or_else_its_name(self) -> None:
        assert description_for_model(MCPTool("now", "Tell the time.", {}, title="The time")) == "Tell the time."
        assert description_for_model(MCPTool("now", "", {}, title="The time")) == "The time"
        assert description_for_model(MCPTool("now", "", {})) == "now"

    def test_definitions_for_apis_have_it_too(self) -> None:
        with MCPClientManager({"time": FakeServer("time", tools=[{"name": "now", "title": "The time"}])}) as manager:
            definitions = [*anthropic_tools(manager), *openai_tools(manager, "responses")]

        assert [definition["description"] for definition in definitions] == ["The time"] * 2


class TestInputSchema:
    def test_it_is_a_copy(self) -> None:
        tool = MCPTool("add", "", {"type": "object", "properties": {"a": {"type": "number"}}})

        schema = input_schema(tool)
        schema["properties"]["a"]["type"] = "string"

        assert tool.input_schema["properties"] == {"a": {"type": "number"}}

    @pytest.mark.parametrize("sent", [{}, {"type": "object"}, {"type": "object", "properties": None}])
    def test_it_is_always_that_of_an_object(self, sent: dict[str, Any]) -> None:
        assert input_schema(MCPTool("now", "", sent)) == {"type": "object", "properties": {}}


class TestArguments:
    @pytest.mark.parametrize("written", [None, "", " \n"])
    def test_no_text_means_no_arguments(self, written: str | None) -> None:
        assert parse_arguments(written) == {}

    def test_an_object_is_taken(self) -> None:
        assert parse_arguments('{"a": 1}') == {"a": 1}
        assert parse_arguments({"a": 1}) == {"a": 1}

    @pytest.mark.parametrize("written", ['{"a": ', "[1]", "1", "[" * 100_000])
    def test_anything_else_is_refused_with_its_beginning(self, written: str) -> None:
        with pytest.raises(InvalidArguments, match="JSON") as caught:
            parse_arguments(written)

        assert written[:10] in str(caught.value)
        assert len(str(caught.value)) < 1000
