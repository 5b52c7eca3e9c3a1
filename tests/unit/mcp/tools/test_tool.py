"""Tools as servers describe them."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.tools.naming import disambiguated
from gaia.mcp.tools.tool import MCPTool, tool_from_listing

READ_FILE = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "File path"},
        "encoding": {"type": "string", "description": "Encoding"},
    },
    "required": ["path"],
}


class TestMCPTool:
    def test_the_first_three_fields_make_a_tool(self) -> None:
        tool = MCPTool("read_file", "Read file", READ_FILE)
        assert (tool.name, tool.description, tool.input_schema) == ("read_file", "Read file", READ_FILE)
        assert (tool.output_schema, tool.annotations, tool.title) == (None, {}, None)
        assert (tool.server, tool.namespaced_name) == (None, None)

    def test_a_tool_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            MCPTool("a", "", {}).name = "b"  # type: ignore[misc]

    def test_a_full_listing_entry_is_read(self) -> None:
        tool = tool_from_listing(
            {
                "name": "now",
                "title": "What time is it?",
                "description": "The time",
                "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object", "properties": {}},
                "annotations": {"readOnlyHint": True},
                "_meta": {"x": 1},
            }
        )
        assert tool == MCPTool(
            "now",
            "The time",
            {"type": "object"},
            {"type": "object", "properties": {}},
            {"readOnlyHint": True},
            "What time is it?",
        )

    @pytest.mark.parametrize(
        "rest",
        [
            {},
            {"description": None, "inputSchema": None, "outputSchema": None, "annotations": None, "title": None},
            {"description": 5, "inputSchema": True, "outputSchema": [], "annotations": "no", "title": {}},
        ],
    )
    def test_a_name_is_all_that_a_listing_entry_needs(self, rest: dict[str, Any]) -> None:
        assert tool_from_listing({"name": "now", **rest}) == MCPTool("now", "", {})

    @pytest.mark.parametrize("entry", [{}, {"name": None}, {"name": 5}, {"name": ""}, None, "now", ["now"]])
    def test_an_entry_without_a_name_is_an_invalid_response(self, entry: object) -> None:
        with pytest.raises(InvalidResponse, match="expected a tool with a name, got"):
            tool_from_listing(entry)

    def test_a_huge_nameless_entry_makes_no_huge_message(self) -> None:
        with pytest.raises(InvalidResponse) as refusal:
            tool_from_listing({"description": "x" * 1_000_000})
        assert len(str(refusal.value)) < 1000

    @pytest.mark.parametrize(
        ("annotations", "safe"),
        [
            ({}, False),
            ({"readOnlyHint": True}, True),
            ({"idempotentHint": True}, True),
            ({"readOnlyHint": False, "idempotentHint": True}, True),
            ({"readOnlyHint": False, "destructiveHint": False}, False),
            ({"readOnlyHint": "true"}, False),
            ({"readOnlyHint": 1, "idempotentHint": "no"}, False),
        ],
    )
    def test_only_a_plain_true_makes_a_tool_safe_to_repeat(self, annotations: dict[str, Any], safe: bool) -> None:
        assert MCPTool("a", "", {}, annotations=annotations).safe_to_repeat is safe


class TestToGaiaFormat:
    def test_it_is_the_entry_of_the_specification(self) -> None:
        assert MCPTool("read_file", "Read file contents", READ_FILE).to_gaia_format("filesystem") == {
            "name": "mcp_filesystem_read_file",
            "description": "[MCP:filesystem] Read file contents",
            "parameters": {
                "path": {"type": "string", "required": True, "description": "File path"},
                "encoding": {"type": "string", "required": False, "description": "Encoding"},
            },
            "atomic": True,
            "_mcp_server": "filesystem",
            "_mcp_tool_name": "read_file",
        }

    def test_an_unsafe_name_is_replaced_and_the_original_kept_for_routing(self) -> None:
        entry = MCPTool("read file", "", {}).to_gaia_format("my.fs")
        assert entry["name"] == disambiguated("my.fs", "read file")
        assert (entry["_mcp_server"], entry["_mcp_tool_name"]) == ("my.fs", "read file")
