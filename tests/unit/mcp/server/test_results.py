"""From what an agent returns to what the protocol sends."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gaia.mcp.errors import ServerCrashed
from gaia.mcp.server.results import prompt_result, resource_result, tool_result
from gaia.mcp.tools.tool_result import ToolResult


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
    "value",
    [
        {"content": "the text of a file"},
        {"content": [1, 2]},
        {"content": [{"type": "of something else"}]},
        {"content": None},
        {},
    ],
)
def test_what_only_looks_like_it_is_data(value: dict[str, Any]) -> None:
    result = wire(tool_result(value))
    assert result["structuredContent"] == value
    assert result["isError"] is False


@pytest.mark.parametrize("value", [{"error": "no"}, {"status": "error", "error": "no"}, {"status": "error"}])
def test_the_ways_in_which_agents_tell_errors(value: dict[str, Any]) -> None:
    assert wire(tool_result(value))["isError"] is True


def test_the_result_of_a_call_to_another_server_is_passed_on() -> None:
    content = [{"type": "text", "text": "18 degrees"}]
    assert wire(tool_result(ToolResult({"content": content}))) == {"content": content, "isError": False}


@pytest.mark.parametrize("value", [{"error": None, "a": 1}, {"error": ""}, {"status": "ok"}])
def test_what_is_no_error(value: dict[str, Any]) -> None:
    assert wire(tool_result(value))["isError"] is False


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


def test_a_text_is_sent_as_it_is() -> None:
    assert wire(tool_result("plain")) == {"content": [{"type": "text", "text": "plain"}], "isError": False}


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


def test_a_prompt_that_is_none_is_refused() -> None:
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
