"""Real signals, at any moment, whose handlers use the manager that they interrupt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.profile import Profile
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="about signals"), pytest.mark.slow, pytest.mark.process]

PROGRAM = Path(__file__).with_name("signal_program.py")
ROUNDS = 4


@pytest.mark.parametrize("handler", ["disconnects", "calls", "raises"])
@pytest.mark.parametrize("operation", ["add_server", "call_tool", "disconnect_all"])
def test_a_handler_at_any_moment_neither_hangs_nor_leaves_a_server(
    chaos: Profile, tmp_path: Path, operation: str, handler: str
) -> None:
    run = subprocess.run(
        [sys.executable, str(PROGRAM), operation, handler, str(chaos.examples or ROUNDS), str(chaos.seed)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["wrong"] == []
    assert report["timeouts"] == []
    assert report["handled"] > 0
