"""One list of several servers' items."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import MergedList

SERVER = cast("UpstreamServer", object())


class Part:
    def __init__(self, ttl_ms: int, *, is_public: bool, is_offered: bool = True) -> None:
        self.ttl_ms, self.is_public, self.is_offered = ttl_ms, is_public, is_offered


def merged(*parts: Part, items: int = 1) -> MergedList:
    found = MergedList("prompts", 1)
    for part in parts:
        found.note(cast("CachedList", part))
    for number in range(items):
        found.add(f"p{number}", SERVER, "own", {"name": f"p{number}"})
    return found


def page(found: MergedList, cursor: str | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(found.page(cursor, stateless=True))
    return result


@pytest.mark.parametrize(
    ("parts", "ttl", "scope"),
    [
        ([], 0, "private"),
        ([Part(500, is_public=True), Part(300, is_public=True)], 300, "public"),
        ([Part(500, is_public=True), Part(0, is_public=True)], 0, "public"),
        ([Part(500, is_public=True), Part(300, is_public=False)], 300, "private"),
        ([Part(500, is_public=True), Part(0, is_public=False, is_offered=False)], 500, "public"),
    ],
)
def test_it_may_be_kept_as_long_as_each_part_and_by_whom_each_part_may(parts: list[Part], ttl: int, scope: str) -> None:
    result = page(merged(*parts))
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (ttl, scope, "complete")


def test_clients_of_the_handshake_era_are_told_nothing_of_that() -> None:
    assert json.loads(merged().page(None, stateless=False)) == {"prompts": [{"name": "p0"}]}


def test_long_lists_have_pages() -> None:
    found, names, cursor = merged(items=2_500), [], None
    while True:
        result = page(found, cursor)
        names += [item["name"] for item in result["prompts"]]
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert names == [f"p{number}" for number in range(2_500)]


@pytest.mark.parametrize("cursor", ["", "0", "17", "3000", "-1000", "x", "1000000000000"])
def test_a_cursor_of_another_list_is_refused(cursor: str) -> None:
    with pytest.raises(RequestRefused):
        merged(items=2_500).page(cursor, stateless=True)


def test_marked_arguments_are_known_and_invalid_marks_are_left_aside() -> None:
    found = MergedList("tools", 1)
    region = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    found.add("good", SERVER, "good", {"name": "good", "inputSchema": region})
    found.add("bad", SERVER, "bad", {"name": "bad", "inputSchema": {"x-mcp-header": "Region"}})
    assert found.marks == {"good": {("region",): "Region"}}
