"""The soak itself, with a few faults: it runs, counts everything, and says so with its exit code."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.soak.placed import LATE, Call, violation
from tests.waiting import PATIENCE

DEADLINE = 100.0
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("tool", "told", "delivery", "made", "wrong"),
    [
        ("note", "ok", None, [99.0], None),
        ("note", "timeout", "not_sent", [], None),
        ("note", "timeout", "unknown", [100.1], None),
        ("look", "ok", None, [98.0, 99.0], None),
        ("note", None, None, [99.0], "has no outcome"),
        ("note", "ok", None, [], "was answered and never made"),
        ("look", "timeout", "not_sent", [99.0], "was said not to be sent, and was made"),
        ("note", "server_crashed", "unknown", [98.0, 99.0], "was made 2 times"),
        ("note", "timeout", "unknown", [DEADLINE + LATE + 1], f"was made {LATE + 1:.2f} s after its deadline"),
    ],
)
def test_what_must_not_be_of_a_call(
    tool: str, told: str | None, delivery: str | None, made: list[float], wrong: str | None
) -> None:
    call = Call("p0", "shared", tool, DEADLINE, told, delivery)
    assert violation(call, made, was_killed=False) == wrong
    if told is None:
        assert violation(call, made, was_killed=True) is None


def soak(pytestconfig: pytest.Config, *options: str) -> dict[str, Any]:
    seed = ["--seed", str(pytestconfig.getoption("chaos_seed"))]
    command = [sys.executable, "-m", "tests.soak.placed", *options, "--callers", "8", *seed, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["wrong"] == []
    assert figures["calls"] == sum(figures["told"].values()) + figures["of_killed_programs"] > 20
    return figures


@pytest.mark.process
@pytest.mark.slow
def test_a_short_one(pytestconfig: pytest.Config) -> None:
    figures = soak(pytestconfig, "--hosts", "1", "--servers", "1", "--programs", "1", "--pauses", "2")
    assert sum(figures["faults"].values()) == 5
    assert figures["recoveries"]["host killed"]["count"] >= 1


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_short_one_on_a_cluster(pytestconfig: pytest.Config) -> None:
    figures = soak(
        pytestconfig, "--ray", "--nodes", "1", "--hosts", "1", "--servers", "0", "--programs", "0", "--pauses", "0"
    )
    assert figures["faults"] == {"node lost": 1, "host killed": 1}
