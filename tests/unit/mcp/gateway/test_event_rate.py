"""How often events pass that clients can cause."""

from __future__ import annotations

import pytest

from gaia.mcp.gateway import event_rate as module
from gaia.mcp.gateway.event_rate import EventRate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_of_a_key_passes_in_so_many_seconds_and_says_how_many_did_not(clock: Clock) -> None:
    rate = EventRate(10.0, clock)
    assert rate.passes("a") == 0
    assert rate.passes("b") == 0
    assert [rate.passes("a") for _ in range(3)] == [None, None, None]
    clock.now = 10.0
    assert rate.passes("a") == 3
    assert rate.passes("a") is None


def test_of_many_keys_the_last_share_one_place(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    rate = EventRate(10.0, clock)
    assert [rate.passes(key) for key in range(6)] == [0, 0, 0, 0, None, None]
    assert len(rate._passed) == 4
    clock.now = 10.0
    assert rate.passes("new") == 0
    assert len(rate._passed) == 1
