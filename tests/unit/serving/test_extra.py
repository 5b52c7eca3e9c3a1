"""Serving needs packages that clients do not."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from gaia.api import serve_api
from gaia.mcp.server import serve_http, serve_stdio
from gaia.runtime.extras import install_command
from gaia.serving.loading import ServingUnavailable
from tests.serving.agents import QuietAgent
from tests.waiting import PATIENCE

HEAVY = {"jsonschema", "mcp", "pydantic", "starlette", "uvicorn"}


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_is_said_with_the_way_to_get_it() -> None:
    agent = QuietAgent(silent_mode=True)
    for serve in (lambda: serve_stdio(agent), lambda: serve_http(agent), lambda: serve_api([])):
        with pytest.raises(ServingUnavailable, match=re.escape(install_command("serve"))):
            serve()


@pytest.mark.process
def test_nothing_of_it_is_loaded_before_something_is_served() -> None:
    program = (
        "import sys, gaia.mcp.server, gaia.api, gaia.mcp.mcp_bridge, gaia.agents.base, gaia.cli.main;"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stderr, run.stdout.split()) == (0, "", [])
