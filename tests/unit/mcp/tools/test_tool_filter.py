"""Which tools agents get to see."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import ConfigError
from gaia.mcp.tools import tool_filter
from gaia.mcp.tools.naming import disambiguated, namespaced
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter


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
