"""The soak itself, with a few losses: it runs, counts everything, and says so with its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

PATIENCE = 240.0
"""Seconds, for a cluster of its own that is started, loses a node and is stopped."""


def test_a_short_one(pytestconfig: pytest.Config) -> None:
    size = ["--nodes", "1", "--actors", "1", "--callers", "4", "--seed", str(pytestconfig.getoption("chaos_seed"))]
    command = [sys.executable, "-m", "tests.soak.placed", *size, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["wrong"] == []
    assert (figures["nodes_lost"], figures["actors_killed"]) == (1, 1)
    assert figures["calls"] == sum(figures["told"].values()) > 20
    assert figures["node_lost"]["count"] == figures["actor_killed"]["count"] == 1
