"""Tools and prompts made of functions and of definitions."""

import dataclasses
from typing import Annotated, Any

import pydantic
import pytest

from gaia.agents.base.mcp_context import MCPCapabilityMissing, MCPContext
from gaia.mcp import JsonRpcError
from gaia.testing import FakePrompt, FakeTool

CONTEXT = MCPContext()


@dataclasses.dataclass
class Place:
    city: str
    zip: int = 0


def now(zone: Annotated[str, "Such as UTC"], seconds: bool = False) -> str:
    """Tell the time.

    With seconds, if that is wanted.
    """
    return f"12:00{':00' if seconds else ''} {zone}"


def returning(value: Any) -> dict[str, Any]:
    """The result of a tool whose function returns this."""
    return FakeTool(lambda: value, name="tool").run({}, CONTEXT)


def test_the_definition_is_derived_from_the_function() -> None:
    assert FakeTool(now).definition == {
        "name": "now",
        "description": "Tell the time.\n\nWith seconds, if that is wanted.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "zone": {"type": "string", "description": "Such as UTC"},
                "seconds": {"type": "boolean", "default": False},
            },
            "required": ["zone"],
            "additionalProperties": False,
        },
    }


def test_members_of_the_definition_replace_derived_ones() -> None:
    tool = FakeTool(now, name="clock", annotations={"readOnlyHint": True})
    assert tool.name == "clock"
    assert tool.definition["annotations"] == {"readOnlyHint": True}
    assert tool.definition["inputSchema"]["required"] == ["zone"]


def test_a_definition_alone_is_a_tool_without_content() -> None:
    definition = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}}}
    tool = FakeTool.of(definition)
    assert tool.definition == {"description": "", **definition}
    assert tool.run({"a": 1}, CONTEXT) == {"content": [], "isError": False}


def test_a_tool_stays_what_it_is() -> None:
    tool = FakeTool(now)
    assert FakeTool.of(tool) is tool


@pytest.mark.parametrize("value", [{"description": "nameless"}, 5])
def test_what_is_no_tool_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^tools: "):
        FakeTool.of(value)


def test_arguments_are_converted_to_what_the_function_takes() -> None:
    def visit(place: Place) -> str:
        return f"{type(place).__name__} {place.city}"

    assert FakeTool(visit).run({"place": {"city": "Ulm"}}, CONTEXT)["content"][0]["text"] == "Place Ulm"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "missing argument 'zone'"),
        ({"zone": "UTC", "colour": "red"}, "unexpected argument 'colour'"),
        ({"zone": 5}, "argument 'zone': Expected `str`, got `int`"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_that_a_model_can_read(arguments: dict[str, Any], problem: str) -> None:
    result = FakeTool(now).run(arguments, CONTEXT)
    assert result == {"content": [{"type": "text", "text": problem}], "isError": True}


def test_a_function_may_take_any_argument() -> None:
    def anything(*_: Any, **arguments: Any) -> dict[str, Any]:
        return arguments

    tool = FakeTool(anything)
    assert "additionalProperties" not in tool.definition["inputSchema"]
    assert tool.run({"a": [1]}, CONTEXT)["structuredContent"] == {"a": [1]}


def test_annotations_that_mean_nothing_do_no_harm() -> None:
    def odd(a: "NoSuchType", b: int = 1) -> str:  # type: ignore[name-defined]  # noqa: F821
        return f"{a} {b}"

    assert FakeTool(odd).run({"a": "x"}, CONTEXT)["content"][0]["text"] == "x 1"


def test_a_coroutine_function_is_run() -> None:
    async def later() -> str:
        return "later"

    assert FakeTool(later).run({}, CONTEXT)["content"][0]["text"] == "later"


def test_a_parameter_for_the_context_is_no_argument() -> None:
    def asks(question: str, context: MCPContext) -> str:
        return f"{question} {context is CONTEXT}"

    tool = FakeTool(asks)
    assert list(tool.definition["inputSchema"]["properties"]) == ["question"]
    assert tool.run({"question": "Same?"}, CONTEXT)["content"][0]["text"] == "Same? True"


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", {"content": [{"type": "text", "text": "text"}], "isError": False}),
        (5, {"content": [{"type": "text", "text": "5"}], "isError": False}),
        (None, {"content": [], "isError": False}),
        ([1, 2], {"content": [{"type": "text", "text": "[1, 2]"}], "isError": False}),
        (
            {"a": 1},
            {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}, "isError": False},
        ),
        (
            Place("Ulm"),
            {
                "content": [{"type": "text", "text": '{"city": "Ulm", "zip": 0}'}],
                "structuredContent": {"city": "Ulm", "zip": 0},
                "isError": False,
            },
        ),
        (
            [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
            {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": False},
        ),
        ({"content": [], "isError": True}, {"content": [], "isError": True}),
    ],
)
def test_what_a_function_returns_becomes_a_result(value: Any, result: dict[str, Any]) -> None:
    assert returning(value) == result


def test_an_exception_is_a_result_with_an_error() -> None:
    def fails() -> None:
        raise KeyError("no such zone")

    result = FakeTool(fails).run({}, CONTEXT)
    assert result == {"content": [{"type": "text", "text": "'no such zone'"}], "isError": True}


@pytest.mark.parametrize("error", [JsonRpcError(-32000, "out of order"), MCPCapabilityMissing("sampling")])
def test_an_error_of_the_protocol_is_none_of_the_tool(error: Exception) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        FakeTool(fails).run({}, CONTEXT)


def greet(name: str, language: str = "English") -> str:
    """Ask for a greeting."""
    return f"Greet {name} in {language}."


def test_a_prompt_is_derived_from_a_function() -> None:
    prompt = FakePrompt.of(greet)
    assert prompt.definition == {
        "name": "greet",
        "description": "Ask for a greeting.",
        "arguments": [{"name": "name", "required": True}, {"name": "language", "required": False}],
    }
    message = {"role": "user", "content": {"type": "text", "text": "Greet Bo in English."}}
    assert prompt.run({"name": "Bo"}, CONTEXT) == {"description": "Ask for a greeting.", "messages": [message]}


def test_a_prompt_may_give_its_messages() -> None:
    messages = [{"role": "assistant", "content": {"type": "text", "text": "Hello"}}]
    prompt = FakePrompt(lambda: messages, name="hello")
    assert FakePrompt.of(prompt) is prompt
    assert prompt.run({}, CONTEXT)["messages"] == messages


class TestPydantic:
    class Note(pydantic.BaseModel):
        title: str = pydantic.Field(min_length=1)
        tags: list[str] = []

    @staticmethod
    def save(
        note: Note,
        copies: Annotated[int, pydantic.Field(ge=1, le=3, description="How many")] = 1,
        folder: str = pydantic.Field("inbox", pattern="^[a-z]+$"),
        others: list[Note] | None = None,
    ) -> Note:
        """Save a note."""
        assert isinstance(note, TestPydantic.Note)
        return TestPydantic.Note(title=f"{note.title} in {folder}, {copies} times", tags=[type(others).__name__])

    def test_the_schema_is_pydantics(self) -> None:
        schema = FakeTool(self.save).definition["inputSchema"]

        assert schema["required"] == ["note"]
        assert schema["properties"]["note"]["properties"]["title"]["minLength"] == 1
        assert schema["properties"]["others"]["anyOf"][0]["items"] == {"$ref": "#/$defs/Note"}
        assert schema["$defs"]["Note"]["required"] == ["title"]
        copies = {"type": "integer", "minimum": 1, "maximum": 3, "description": "How many", "default": 1}
        assert schema["properties"]["copies"] == copies
        assert schema["properties"]["folder"] == {"type": "string", "pattern": "^[a-z]+$", "default": "inbox"}

    def test_arguments_are_models_and_a_model_is_structured_content(self) -> None:
        result = FakeTool(self.save).run({"note": {"title": "a"}, "others": [{"title": "b"}]}, CONTEXT)

        assert result["structuredContent"] == {"title": "a in inbox, 1 times", "tags": ["list"]}

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"note": {"title": ""}}, "argument 'note'"),
            ({"note": {"title": "a"}, "copies": 4}, "argument 'copies'"),
            ({"note": {"title": "a"}, "folder": "A"}, "argument 'folder'"),
            ({}, "missing argument 'note'"),
        ],
    )
    def test_arguments_that_violate_the_schema_are_an_error_of_the_tool(self, arguments: Any, said: str) -> None:
        result = FakeTool(self.save).run(arguments, CONTEXT)

        assert result["isError"]
        assert said in result["content"][0]["text"]
