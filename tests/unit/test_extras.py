"""What is said to install, where an extra is missing."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from gaia.extras import EXTRAS, install_command
from tests.waiting import PATIENCE


@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_pip_accepts_the_command_wherever_gaia_came_from() -> None:
    # The packages are installed here, so pip needs no index.
    command = f"{install_command('dashboard')} --no-index --dry-run --disable-pip-version-check"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Requirement already satisfied: uvicorn") >= 1


def test_it_is_for_this_python_and_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my envs/bin/python")
    assert shlex.split(install_command("oauth"))[-3:] == list(EXTRAS["oauth"])
    assert install_command("llm").startswith("'/my envs/bin/python' ")
    assert install_command("llm").endswith(" install 'openai>=1.60'") or "uv" in install_command("llm")


def test_an_environment_without_pip_was_made_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert shlex.split(install_command("llm")) == [
        *("uv", "pip", "install", "--python", sys.executable),
        "openai>=1.60",
    ]
