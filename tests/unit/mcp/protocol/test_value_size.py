"""How much memory a decoded value takes."""

import tracemalloc
from typing import Any

import orjson
import pytest

from gaia.mcp.protocol.messages import value_size
from gaia.mcp.supervision.events import ServerLog, ToolsChanged

VALUES: list[Any] = [
    "x" * 1_000_000,
    {f"key {number}": number for number in range(10_000)},
    [[] for _ in range(20_000)],
    [{"text": f"some text {number}", "more": [number / 7, None, True]} for number in range(5_000)],
]


@pytest.mark.parametrize("value", VALUES, ids=["text", "mapping", "empty lists", "nested"])
def test_it_is_about_what_the_value_takes_when_it_is_decoded(value: Any) -> None:
    encoded = orjson.dumps(value)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        decoded = orjson.loads(encoded)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # It counts keys that occur several times, and small numbers, each time.
    assert 0.6 * (after - before) <= value_size(decoded) <= 3 * (after - before)


def test_events_are_as_large_as_what_is_in_them() -> None:
    assert value_size(ServerLog("s", "info", None, {"text": "x" * 50_000})) > 50_000
    assert value_size(ToolsChanged("s", added=("x" * 50_000,))) > 50_000
    assert value_size(ToolsChanged("s")) < 1_000


def test_nesting_has_no_limit() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert value_size(value) > 100_000
    while value:
        value = value.pop()
