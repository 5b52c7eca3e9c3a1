"""From `package.module:AgentClass` to an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaia.serving.loading import AgentNotLoaded, load_agent

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
