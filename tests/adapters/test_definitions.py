"""At each step of a run an agent has the tools that the manager offers and its selection permits; each is made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters import arguments, results
from gaia.adapters.selection import ToolSelection
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer
from tests.adapters import steps
from tests.waiting import wait_until

Offered = Callable[[], list[str]]
Step = Callable[..., Offered]


def look_up(text: str) -> str:
    """Look up a note."""
    return text


def delete(text: str) -> str:
    """Delete a note."""
    return text


@pytest.fixture
def servers() -> dict[str, FakeServer]:
    return {name: FakeServer(name, tools=[look_up, delete]) for name in ("notes", "mail")}


@pytest.fixture
def manager(servers: dict[str, FakeServer]) -> Any:
    with MCPClientManager(servers) as manager:
        manager.require()
        yield manager


@pytest.fixture(params=steps.FRAMEWORKS)
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Step:
    """Makes an agent's adapter of a manager and a selection; returns what lists the names of the tools of a step."""
    module = steps.FRAMEWORKS[request.param]
    pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "none")

    def make(manager: Any, **options: Any) -> Offered:
        async def list_definitions() -> Any:
            return await listed()

        listed = getattr(steps, request.param)(manager, **options)
        return lambda: steps.names_of(asyncio.run(list_definitions()))

    return make


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_an_agent_is_offered_the_tools_of_its_selection(manager: MCPClientManager, step: Step) -> None:
    readers = ToolSelection(manager, servers=["n*"], tools=["look_*", "delete"], exclude=["mcp_*_delete"])

    assert step(readers)() == ["mcp_notes_look_up"]
    assert sorted(step(ToolSelection(manager))()) == sorted(tool.namespaced_name or "" for tool in manager.list_tools())


def test_definitions_are_made_once_for_all_agents_and_steps(
    manager: MCPClientManager, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = step(manager)()

    # Each definition begins with one of these.
    monkeypatch.setattr(results, "copy", None)
    monkeypatch.setattr(arguments, "_Inliner", None)
    again, other = step(manager), step(manager)

    assert [again(), again(), other()] == [listed] * 3


def test_an_agent_follows_the_changes_of_a_server(
    manager: MCPClientManager, servers: dict[str, FakeServer], step: Step
) -> None:
    def create(text: str) -> str:
        """Create a note."""
        return text

    offered = step(ToolSelection(manager, servers=["notes"]))
    assert sorted(offered()) == ["mcp_notes_delete", "mcp_notes_look_up"]

    servers["notes"].tools.add(create)
    servers["notes"].tools.remove("delete")
    assert wait_until(lambda: sorted(offered()) == ["mcp_notes_create", "mcp_notes_look_up"])
    manager.remove_server("notes")
    assert offered() == []
