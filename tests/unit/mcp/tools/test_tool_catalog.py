"""The tools of one server: what is kept of a listing, what is withheld, and which changes are reported."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.supervision.events import ToolsChanged
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_catalog import MAX_DEFINITION, MAX_TOOLS, ToolCatalog, size_within_limits

Json = dict[str, Any]


def allow_all(_: str) -> bool:
    return True


def block_none(_: Mapping[str, MCPTool], __: Collection[str]) -> Collection[str]:
    return ()


def listing(*names: str) -> list[Json]:
    return [{"name": name} for name in names]


def replace(
    catalog: ToolCatalog,
    definitions: list[Any],
    allows: Callable[[str], bool] = allow_all,
    blocked_of: Callable[[Mapping[str, MCPTool], Collection[str]], Collection[str]] = block_none,
) -> ToolsChanged | None:
    return catalog.replace(catalog.sort(definitions, allows, blocked_of))


class TestListings:
    def test_an_empty_listing_is_a_listing(self) -> None:
        catalog = ToolCatalog("s")
        assert not catalog.listed
        assert replace(catalog, []) is None
        assert catalog.listed

    def test_what_changed_is_sorted_by_kind_and_name(self) -> None:
        catalog = ToolCatalog("s")
        assert replace(catalog, listing("c", "b", "a")) == ToolsChanged("s", added=("a", "b", "c"))
        changed = [{"name": "d"}, {"name": "b", "description": "new"}, {"name": "a"}]
        assert replace(catalog, changed) == ToolsChanged("s", added=("d",), removed=("c",), changed=("b",))
        assert [tool.name for tool in catalog.tools] == ["d", "b", "a"]

    def test_an_equal_listing_is_no_change(self) -> None:
        catalog = ToolCatalog("s")
        replace(catalog, listing("a", "b"))
        assert replace(catalog, listing("b", "a")) is None

    def test_of_a_name_that_is_listed_twice_the_last_definition_counts(self) -> None:
        catalog = ToolCatalog("s")
        replace(catalog, [{"name": "a", "description": "first"}, {"name": "a", "description": "last"}])
        assert len(catalog) == 1
        assert (tool := catalog.get("a")) is not None
        assert tool.description == "last"

    def test_after_clearing_there_is_no_listing(self) -> None:
        catalog = ToolCatalog("s")
        replace(catalog, listing("a", "denied", "blocked"), lambda name: name != "denied", lambda *_: {"blocked"})
        assert catalog.replace(None) == ToolsChanged("s", removed=("a",))
        assert (catalog.listed, catalog.tools, catalog.denied, catalog.blocked) == (False, (), frozenset(), {})
        assert catalog.replace(None) is None


class TestWithheld:
    def test_denied_and_blocked_tools_are_known_and_not_on_offer(self) -> None:
        catalog = ToolCatalog("s")
        tools = catalog.sort(listing("a", "denied", "blocked"), lambda name: name != "denied", lambda *_: {"blocked"})
        assert not catalog.listed
        assert catalog.replace(tools) == ToolsChanged("s", added=("a",))
        assert tools.names == ["a", "denied", "blocked"]
        assert ("a" in catalog, "denied" in catalog, "blocked" in catalog) == (True, False, False)
        assert catalog.denied == {"denied"}
        assert list(catalog.blocked) == ["blocked"]

    def test_pins_are_asked_about_allowed_tools_and_told_the_names_of_all(self) -> None:
        asked: list[tuple[list[str], list[str]]] = []

        def blocked_of(allowed: Mapping[str, MCPTool], listed: Collection[str]) -> Collection[str]:
            asked.append((list(allowed), list(listed)))
            return ()

        replace(ToolCatalog("s"), listing("a", "denied"), lambda name: name != "denied", blocked_of)
        assert asked == [(["a"], ["a", "denied"])]

    def test_a_tool_that_becomes_blocked_is_a_tool_less(self) -> None:
        catalog = ToolCatalog("s")
        replace(catalog, listing("a", "b"))
        assert replace(catalog, listing("a", "b"), allow_all, lambda *_: {"b"}) == ToolsChanged("s", removed=("b",))


class TestLimits:
    def test_too_many_tools_are_cut_and_that_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        catalog = ToolCatalog("s")
        definitions = [{"name": f"t{number}"} for number in range(MAX_TOOLS + 500)]
        replace(catalog, definitions)
        assert len(catalog) == MAX_TOOLS
        assert "ignored=500" in caplog.text

    def test_tools_that_are_too_long_in_all_are_cut(self, caplog: pytest.LogCaptureFixture) -> None:
        catalog = ToolCatalog("s")
        long = "x" * (MAX_DEFINITION - 1000)
        definitions = [{"name": f"t{number}", "description": long} for number in range(200)]
        replace(catalog, definitions)
        assert 60 <= len(catalog) <= 70
        assert "tools_ignored" in caplog.text

    @pytest.mark.parametrize("definition", ["a", None, {}, {"name": 5}, {"name": "a", "inputSchema": {"p": [[[[]]]]}}])
    def test_an_unusable_definition_does_not_take_the_others_along(
        self, definition: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("gaia.mcp.tools.tool_catalog._MAX_DEPTH", 4)
        catalog = ToolCatalog("s")
        replace(catalog, [{"name": "before"}, definition, {"name": "after"}])
        assert [tool.name for tool in catalog.tools] == ["before", "after"]
        assert caplog.text.count("tool_ignored") == 1

    def test_a_long_name_is_cut_before_it_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        replace(ToolCatalog("s"), [{"name": "n" * MAX_DEFINITION, "description": "d"}])
        (record,) = caplog.records
        assert 100 <= len(record.getMessage()) < 500


class TestSize:
    def test_keys_and_texts_count(self) -> None:
        short, long = size_within_limits({"a": "b"}), size_within_limits({"a" * 10: "b" * 20})
        assert long - short == 9 + 19

    @pytest.mark.parametrize(
        "definition", [{"a": "x" * MAX_DEFINITION}, {"x" * MAX_DEFINITION: 1}, [0] * MAX_DEFINITION]
    )
    def test_too_long_a_definition_is_refused(self, definition: Any) -> None:
        with pytest.raises(InvalidResponse, match=f"longer than {MAX_DEFINITION} characters"):
            size_within_limits(definition)

    @pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"p": value}])
    @pytest.mark.parametrize(("levels", "accepted"), [(63, True), (64, False), (100_000, False)])
    def test_nesting_is_bounded_however_deep_it_is(
        self, wrap: Callable[[Any], Any], levels: int, accepted: bool
    ) -> None:
        definition: Any = "innermost"
        for _ in range(levels):
            definition = wrap(definition)
        if accepted:
            size_within_limits(definition)
        else:
            with pytest.raises(InvalidResponse, match="nested deeper than 64 levels"):
                size_within_limits(definition)
