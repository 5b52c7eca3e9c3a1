"""The command without its script."""

import subprocess
import sys
from collections.abc import Callable

import gaia
from tests.waiting import PATIENCE


def test_python_runs_the_package_as_the_command(starts_programs: Callable[..., None]) -> None:
    command = [sys.executable, "-m", "gaia", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gaia {gaia.__version__}\n", "")
