"""The keys of a sandbox."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gaia.mcp.transports.sandbox import Sandbox, memory_bytes


@pytest.mark.parametrize(
    ("size", "expected"),
    [("512M", 512 * 1024**2), ("2g", 2 * 1024**3), ("20480KiB", 20480 * 1024), ("1GB", 1024**3), (2**25, 2**25)],
)
def test_sizes(size: str | int, expected: int) -> None:
    assert memory_bytes(size) == expected


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"memory": "512X"}, "memory: expected bytes"),
        ({"memory": "-1"}, "memory: expected bytes"),
        ({"memory": 512}, "memory: must be at least 16M"),
        ({"processes": 0}, "processes: must be 1 or more"),
        ({"cpuSeconds": -1}, "cpu_seconds: must be 1 or more"),
        ({"read": [" "]}, "read: ' ' is no path"),
        ({"write": ["a\0b"]}, "write: "),
        ({"wirte": []}, "unknown field `wirte`"),
        ({"network": "yes"}, "Expected `bool`"),
    ],
)
def test_what_cannot_be_meant_is_an_error(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(keys, Sandbox)


def test_the_default_opens_nothing() -> None:
    assert msgspec.convert({}, Sandbox) == Sandbox(
        read=[], write=[], network=False, memory=None, processes=None, cpu_seconds=None
    )
