"""Which limits for one process of a server can be used."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.supervision.context import RecyclingLimits
from tests.fake_transport import FakeTransport


def test_there_is_none_by_default() -> None:
    assert RecyclingLimits() == RecyclingLimits(max_lifetime=None, max_calls=None, max_memory=None)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_lifetime": 0}, "max_lifetime: must be a number of seconds above 0"),
        ({"max_lifetime": float("nan")}, "max_lifetime: must be a number of seconds above 0"),
        ({"max_calls": 0}, "max_calls: must be a whole number from 1 upwards, got 0"),
        ({"max_calls": 1.5}, "max_calls: must be a whole number from 1 upwards, got 1.5"),
        ({"max_calls": True}, "max_calls: must be a whole number from 1 upwards, got True"),
        ({"max_memory": "512M"}, "max_memory: must be a whole number from 1 upwards, got '512M'"),
        ({"max_memory": 16 * 1024**2 - 1}, "max_memory: must be at least 16M"),
    ],
)
def test_what_cannot_be_used_is_refused(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RecyclingLimits(**limits)


def test_a_client_takes_them() -> None:
    client = MCPClient("fake", FakeTransport(), recycling=RecyclingLimits(max_calls=5), drain_timeout=2.0)
    assert client._engine.options.recycling.max_calls == 5
    with pytest.raises(ValueError, match="drain_timeout"):
        MCPClient("fake", FakeTransport(), drain_timeout=0.0)
