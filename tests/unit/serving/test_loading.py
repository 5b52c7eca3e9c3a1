"""From `package.module:AgentClass` to an agent."""

import importlib.util
import re
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gaia.api import serve_api
from gaia.mcp.server import serve_http, serve_stdio
from gaia.runtime.extras import install_command
from gaia.serving.loading import AgentNotLoaded, ServingUnavailable, load_agent
from tests.serving.agents import QuietAgent
from tests.waiting import PATIENCE

MODULE = """
class Base: ...
class Agent(Base): ...
def make():
    return Agent()
ready = Agent()
number = 3
"""


class Base: ...


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_to_load.py").write_text(MODULE.replace("class Base: ...", f"from {__name__} import Base"))
    (tmp_path / "broken_to_load.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["Agent", "make", "ready"])
def test_a_class_a_function_and_an_agent_are_found(name: str) -> None:
    import module_to_load  # type: ignore[import-not-found]

    agent = load_agent(f"module_to_load:{name}", module_to_load.Base)
    assert isinstance(agent, module_to_load.Agent)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("module_to_load", "not of the form"),
        ("module_to_load:", "not of the form"),
        (":Agent", "not of the form"),
        ("no_such_module:Agent", "There is no module 'no_such_module'"),
        ("module_to_load:Nothing", "has no 'Nothing'"),
        ("module_to_load:number", "is no Base, but of type int"),
    ],
)
def test_what_is_not_found_is_told(target: str, message: str) -> None:
    with pytest.raises(AgentNotLoaded, match=message):
        load_agent(target, Base)


def test_an_import_that_fails_inside_the_module_is_the_modules_own_failure() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        load_agent("broken_to_load:Agent", Base)


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
