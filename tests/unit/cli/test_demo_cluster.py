"""`gaia mcp demo --ray`; the whole of it runs in tests/cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.cli import demo_cluster
from gaia.cli.rendering import Step


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Any]) -> None:
    monkeypatch.setattr(
        "gaia.runtime.extras.missing", lambda *_: "ray, which is not installed (extra 'ray' of gaia-mcp)"
    )
    result = invoke("demo", "--ray")
    assert result.exit_code == 2
    assert "extra 'ray' of gaia-mcp" in result.stderr


def test_what_takes_time_is_announced_to_people(monkeypatch: pytest.MonkeyPatch, invoke: Callable[..., Any]) -> None:
    tour = ["Starting …", Step("cluster", True, ["Start"], {}), Step("stop", False, ["Stop"], {})]
    monkeypatch.setattr("gaia.runtime.extras.missing", lambda *_: None)
    monkeypatch.setattr(demo_cluster, "cluster_tour", lambda: (one for one in tour))
    shown = invoke("demo", "--ray")
    assert (shown.exit_code, shown.stdout.splitlines()) == (
        1,
        ["Starting …", "✓ Start", "✗ Stop", "Not as it should be: stop."],
    )
    assert "Starting" not in invoke("demo", "--ray", "--json").stdout
