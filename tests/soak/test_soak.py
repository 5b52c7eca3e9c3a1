"""The soak itself, in a few seconds: it runs, counts everything, and says so with its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_a_short_one(pytestconfig: pytest.Config) -> None:
    seed = str(pytestconfig.getoption("chaos_seed"))
    size = ["--minutes", "0.05", "--servers", "2", "--callers", "4"]
    command = [sys.executable, "-m", "tests.soak", *size, "--seed", seed, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["wrong"] == []
    assert figures["lost"] == 0
    assert figures["calls"] == sum(figures["outcomes"].values()) > 20
    assert sum(figures["kills"].values()) == sum(one["count"] for one in figures["recoveries"].values())


def test_a_short_one_through_a_gateway(home: Path, pytestconfig: pytest.Config) -> None:
    seed = str(pytestconfig.getoption("chaos_seed"))
    size = ["--kills", "5", "--clients", "8", "--servers", "2"]
    command = [sys.executable, "-m", "tests.soak.gateway", *size, "--seed", seed, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["wrong"] == []
    assert figures["calls"] == sum(figures["told"].values()) > 20
    assert figures["recovery"]["count"] > 0
