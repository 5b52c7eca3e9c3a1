"""What a test run's parent says about signals changes no test."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def test_ctrl_c_is_not_ignored_here() -> None:
    """Nor in what tests start: a program begins with what its parent ignores."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@pytest.mark.process
@pytest.mark.slow
def test_so_it_is_in_a_background_job() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"{__file__}::test_ctrl_c_is_not_ignored_here",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, signal; signal.signal(2, signal.SIG_IGN); os.execv({command[0]!r}, {command!r})",
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
