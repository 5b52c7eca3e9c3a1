"""The tools of one server: what is kept of a listing, what is withheld, and which changes are reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import ConfigError, InvalidResponse
from gaia.mcp.supervision.events import ToolsChanged
from gaia.mcp.tools import tool_filter
from gaia.mcp.tools.naming import disambiguated, namespaced
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_catalog import MAX_DEFINITION, MAX_TOOLS, ToolCatalog, size_within_limits
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter

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


@pytest.mark.parametrize(
    ("lists", "allowed", "denied"),
    [
        ({}, ["delete_everything"], []),
        ({"allow": ["get_*", "list"]}, ["get_file", "list"], ["list_all"]),
        ({"allow": []}, [], ["read"]),
        ({"deny": ["delete_*"]}, ["read_file"], ["delete_file"]),
        ({"allow": ["*"], "deny": ["write_?"]}, ["write_ab"], ["write_a"]),
        ({"deny": ["Delete*"]}, ["delete"], ["Delete"]),
    ],
)
def test_lists_of_patterns_decide_and_deny_wins(lists: Any, allowed: list[str], denied: list[str]) -> None:
    subject = ToolFilter(**lists)
    for _ in range(2):
        assert [tool for tool in allowed + denied if subject.allows("fs", tool)] == allowed
    assert (subject == ALLOW_ALL) is (not lists)


@pytest.mark.parametrize("pattern", ["mcp_fs_*", "mcp_fs_read"])
def test_a_pattern_may_name_the_server(pattern: str) -> None:
    subject = ToolFilter(deny=[pattern])
    for _ in range(2):
        assert not subject.allows("fs", "read")
        assert subject.allows("git", "read")


@pytest.mark.parametrize("name_of", [namespaced, disambiguated])
def test_a_name_copied_from_a_listing_works_as_a_pattern(name_of: Any) -> None:
    copied = name_of("my server", "read file")
    assert not ToolFilter(deny=[copied]).allows("my server", "read file")
    assert ToolFilter(allow=[copied]).allows("my server", "read file")
    assert not ToolFilter(allow=[copied]).allows("my server", "write file")


@pytest.mark.parametrize("pattern", ["git_push", "mcp_git_push", "push", "git_*"])
def test_short_names_are_those_of_a_gateway(pattern: str) -> None:
    assert ToolFilter([pattern], short_names=True).allows("git", "push")
    assert not ToolFilter(deny=[pattern], short_names=True).allows("git", "push")
    assert ToolFilter([pattern], short_names=True).unmatched("git", ["push"]) == []
    assert ToolFilter([pattern]).allows("git", "push") == ("git_push" != pattern != "git_*")


def test_a_repeated_question_is_not_decided_again(mocker: Any) -> None:
    matching = mocker.spy(tool_filter, "fnmatchcase")
    subject = ToolFilter(deny=["delete_*"])
    subject.allows("fs", "read")
    first = matching.call_count
    subject.allows("fs", "read")
    assert matching.call_count == first > 0


def test_threads_may_share_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_filter, "_MAX_DECISIONS", 5)
    subject = ToolFilter(deny=["*_odd"])
    tools = [f"{number}_{'odd' if number % 2 else 'even'}" for number in range(20)] * 50
    with ThreadPoolExecutor(8) as pool:
        decisions = list(pool.map(lambda tool: subject.allows("fs", tool), tools))
    assert decisions == [tool.endswith("even") for tool in tools]
    assert len(subject._decisions) <= 5


def test_changing_the_list_afterwards_changes_nothing() -> None:
    deny = ["delete"]
    subject = ToolFilter(deny=deny)
    deny.clear()
    assert not subject.allows("fs", "delete")
    with pytest.raises(AttributeError):
        subject.deny = ()  # type: ignore[misc]


def test_patterns_that_match_nothing_are_found() -> None:
    subject = ToolFilter(allow=["read_*", "raed", "mcp_fs_stat"], deny=["delte_*", "raed", "write"])
    assert subject.unmatched("fs", ["read_file", "stat", "write"]) == ["raed", "delte_*"]
    assert ALLOW_ALL.unmatched("fs", ["read"]) == []
    assert subject.unmatched("git", ["stat"]) == ["read_*", "raed", "mcp_fs_stat", "delte_*", "write"]


@pytest.mark.parametrize(
    ("lists", "complaint"),
    [
        ({"allow": "get_*"}, "allow: expected a list of patterns"),
        ({"deny": "get_*"}, "deny: expected a list of patterns"),
        ({"deny": None}, "deny: expected a list of patterns"),
        ({"allow": 5}, "allow: expected a list of patterns"),
        ({"allow": ["a", 5]}, r"allow\[1\]: expected a string, got 5"),
    ],
)
def test_what_is_no_list_of_patterns_is_refused(lists: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ToolFilter(**lists)


@given(st.text(), st.text(), st.text())
def test_no_pattern_and_no_name_makes_it_fail(pattern: str, server: str, tool: str) -> None:
    denying, allowing = ToolFilter(deny=[pattern]), ToolFilter(allow=[pattern])
    assert denying.allows(server, tool) is not allowing.allows(server, tool)


def test_long_names_are_not_remembered() -> None:
    subject = ToolFilter(deny=["secret*"])
    assert subject.allows("fs", "x" * 1_000)
    assert not subject.allows("fs", "secret" + "x" * 1_000)
    assert subject._decisions == {}


def test_a_denial_says_which_list_it_is() -> None:
    subject = ToolFilter(allow=["get_*", "delete_all"], deny=["delete_*"])
    assert subject.denial("fs", "get_file") is None
    assert subject.denial("fs", "delete_all") == 'is denied by "delete_*" in "deny"'
    assert subject.denial("fs", "list") == 'is not in "allow"'
    named = ToolFilter(allow=(), keys=("enabledTools", "disabledTools"))
    assert named.denial("fs", "list") == 'is not in "enabledTools"'
    assert named == ToolFilter(allow=())
