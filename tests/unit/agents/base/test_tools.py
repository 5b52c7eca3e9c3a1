from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, AnyStr, Literal, Optional

import pytest

from gaia.agents.base.tools import (
    _TOOL_REGISTRY,
    AmbiguousToolName,
    ToolNotFound,
    get_tool_display_name,
    resolve_tool_name,
    tool,
)

pytestmark = pytest.mark.usefixtures("empty_registry")


def mcp_entry(server: str, name: str) -> dict[str, Any]:
    return {"name": f"mcp_{server}_{name}", "_mcp_server": server, "_mcp_tool_name": name}


class Colour(enum.Enum):
    RED = "red"


class TestToolDecorator:
    def test_a_plain_decorator_registers_the_function_and_returns_it_unchanged(self) -> None:
        def add(a: int, b: int = 0) -> int:
            """Add two numbers."""
            return a + b

        assert tool(add) is add
        expected = {
            "add": {
                "name": "add",
                "description": "Add two numbers.",
                "parameters": {
                    "a": {"type": "integer", "required": True, "description": ""},
                    "b": {"type": "integer", "required": False, "description": ""},
                },
                "function": add,
                "atomic": False,
            }
        }
        assert expected == _TOOL_REGISTRY

    def test_options_replace_what_the_function_says(self) -> None:
        @tool(name="sum", description="", atomic=True)
        def add(a: int) -> int:
            """Add."""
            return a

        assert list(_TOOL_REGISTRY) == ["sum"]
        entry = _TOOL_REGISTRY["sum"]
        assert (entry["name"], entry["description"], entry["atomic"]) == ("sum", "", True)
        assert add(3) == 3

    def test_a_google_docstring_gives_the_description_and_those_of_the_parameters(self) -> None:
        @tool
        def search(query: str, limit: int = 5, *, exact: bool = False) -> list[str]:
            """Search the index.

            Slow on the first call.

            Args:
                query: What to look for,
                    words: separated by spaces.
                limit (int, optional): How many.
                exact: Whole words only

            Returns:
                limit: not a parameter's description
            """
            return []

        entry = _TOOL_REGISTRY["search"]
        assert entry["description"] == "Search the index.\n\nSlow on the first call."
        texts = {name: about["description"] for name, about in entry["parameters"].items()}
        assert texts == {
            "query": "What to look for, words: separated by spaces.",
            "limit": "How many.",
            "exact": "Whole words only",
        }

    def test_a_function_without_docstring_has_an_empty_description(self) -> None:
        @tool
        def silent() -> None: ...

        assert _TOOL_REGISTRY["silent"]["description"] == ""

    @pytest.mark.parametrize(
        ("annotation", "word"),
        [
            (str, "string"),
            (bool, "boolean"),
            (int, "integer"),
            (float, "number"),
            (list[str], "array"),
            (tuple[int, ...], "array"),
            (Sequence[int], "array"),
            (dict[str, int], "object"),
            (Mapping[str, int], "object"),
            (Optional[int], "integer"),  # noqa: UP045 - the old form is the subject
            (str | None, "string"),
            (int | str, "integer|string"),
            (int | object, "any"),
            (Literal["a", "b"], "string"),
            (Literal["a", 1], "string|integer"),
            (Colour, "string"),
            (Annotated[int, "some"], "integer"),
            (Any, "any"),
            (object, "any"),
            (bytes, "any"),
            (AnyStr, "any"),
        ],
    )
    def test_annotations_become_json_types(self, annotation: Any, word: str) -> None:
        def takes(value): ...  # type: ignore[no-untyped-def]

        takes.__annotations__["value"] = annotation
        tool(takes)
        assert _TOOL_REGISTRY["takes"]["parameters"]["value"]["type"] == word

    def test_a_parameter_without_annotation_is_of_any_type(self) -> None:
        @tool
        def takes(value, *args, **kwargs): ...  # type: ignore[no-untyped-def]

        assert _TOOL_REGISTRY["takes"]["parameters"] == {
            "value": {"type": "any", "required": True, "description": ""},
        }

    def test_an_annotation_that_cannot_be_evaluated_leaves_the_builtins_understood(self) -> None:
        @tool
        def takes(a: NoSuchName, b: str): ...  # type: ignore[name-defined, no-untyped-def] # noqa: F821

        words = {name: about["type"] for name, about in _TOOL_REGISTRY["takes"]["parameters"].items()}
        assert words == {"a": "any", "b": "string"}

    def test_the_decorator_marks_a_tool(self) -> None:
        tool(requires_confirmation=True, name="marked")(lambda: None)
        assert _TOOL_REGISTRY["marked"]["requires_confirmation"] is True


class TestDisplayName:
    def test_an_mcp_tool_is_shown_by_its_own_name_and_its_server(self) -> None:
        _TOOL_REGISTRY["mcp_acer_launch_experience_zone"] = mcp_entry("acer", "launch_experience_zone")
        assert get_tool_display_name("mcp_acer_launch_experience_zone") == "launch_experience_zone (acer)"

    def test_a_native_tool_is_shown_by_its_name(self) -> None:
        _TOOL_REGISTRY["read_file"] = {"name": "read_file"}
        assert get_tool_display_name("read_file") == "read_file"

    def test_a_name_that_is_not_registered_is_shown_unchanged(self) -> None:
        assert get_tool_display_name("nonexistent") == "nonexistent"


class TestResolveToolName:
    @pytest.mark.parametrize(
        ("asked", "key"),
        [
            ("read_file", "read_file"),
            ("mcp_time_now", "mcp_time_now"),
            ("time_now", "mcp_time_now"),
            ("now", "mcp_time_now"),
            ("MCP_Time_Now", "mcp_time_now"),
            ("NOW", "mcp_time_now"),
            ("READ_FILE", "read_file"),
        ],
    )
    def test_a_tool_answers_to_each_form_of_its_name(self, asked: str, key: str) -> None:
        registry = {"read_file": {"name": "read_file"}, "mcp_time_now": mcp_entry("time", "now")}
        assert resolve_tool_name(asked, registry) == key

    def test_the_exact_key_wins_over_the_bare_name_of_another_tool(self) -> None:
        registry = {"read": {"name": "read"}, "mcp_fs_read": mcp_entry("fs", "read")}
        assert resolve_tool_name("read", registry) == "read"

    def test_the_right_case_wins_over_another_one(self) -> None:
        registry = {"mcp_a_Read": mcp_entry("a", "Read"), "mcp_b_read": mcp_entry("b", "read")}
        assert resolve_tool_name("read", registry) == "mcp_b_read"

    def test_a_tool_under_a_shortened_key_answers_to_its_full_name(self) -> None:
        registry = {"mcp_a_b_c_1f2e": mcp_entry("a", "b_c")}
        assert resolve_tool_name("mcp_a_b_c", registry) == "mcp_a_b_c_1f2e"
        assert resolve_tool_name("a_b_c", registry) == "mcp_a_b_c_1f2e"

    @pytest.mark.parametrize("asked", ["read", "READ"])
    def test_an_ambiguous_name_is_an_error_that_lists_the_candidates(self, asked: str) -> None:
        registry = {"mcp_fs_read": mcp_entry("fs", "read"), "mcp_db_read": mcp_entry("db", "read")}
        with pytest.raises(AmbiguousToolName, match="mcp_db_read, mcp_fs_read") as raised:
            resolve_tool_name(asked, registry)
        assert raised.value.candidates == ["mcp_db_read", "mcp_fs_read"]
        assert isinstance(raised.value, ValueError)

    def test_an_unknown_name_is_an_error_with_close_matches(self) -> None:
        registry = {"mcp_time_now": mcp_entry("time", "now"), "read_file": {"name": "read_file"}}
        with pytest.raises(ToolNotFound, match="'read_fil'; did you mean read_file") as raised:
            resolve_tool_name("read_fil", registry)
        assert raised.value.candidates == ["read_file"]
        assert isinstance(raised.value, ValueError)

    def test_a_name_like_nothing_is_an_error_without_a_guess(self) -> None:
        with pytest.raises(ToolNotFound) as raised:
            resolve_tool_name("zzz", {"read_file": {"name": "read_file"}})
        assert str(raised.value) == "Unknown tool: 'zzz'"
