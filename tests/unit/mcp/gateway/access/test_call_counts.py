"""How calls of clients are counted."""

from __future__ import annotations

from gaia.mcp.gateway.access.checks import BOUNDS, CallCounts
from gaia.mcp.gateway.access.principal import Principal


def test_the_clients_of_an_issuer_are_one() -> None:
    counts = CallCounts()
    for client in (Principal("corp/ann"), Principal("corp/bob"), Principal("ci"), None):
        counts.add(client, "it", "ok", 0.0)

    assert counts.ended == {("corp", "it", "ok"): 2, ("ci", "it", "ok"): 1, ("", "it", "ok"): 1}


def test_durations_are_counted_up_to_each_bound() -> None:
    counts = CallCounts()
    for seconds in (0.0, 0.02, 1000.0):
        counts.add(None, "it", "ok", seconds)
    (found, total) = counts.durations()["", "it"]

    assert dict(zip(BOUNDS, found, strict=False)) == {bound: 1 if bound < 0.02 else 2 for bound in BOUNDS}
    assert (found[-1], total) == (3, 1000.02)
