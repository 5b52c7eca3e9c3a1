"""Another configuration for a manager that runs."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock, FakeServer


def shout(text: str) -> str:
    """Say it aloud."""
    return text.upper()


class TestApplying:
    """What needs no process; `tests/client/test_applied_configurations.py` has the rest."""

    def test_a_server_with_another_clock_changes_places_with_the_former_one(self) -> None:
        real, fake = FakeServer("real", tools=[shout]), FakeServer("fake", tools=[shout], clock=FakeClock())
        with MCPClientManager({"it": real}) as manager:
            client = manager.get_client("it")
            assert manager.apply({"it": fake}).replaced == ("it",)
            assert manager.get_client("it") not in (client, None)
            assert manager.call_tool("mcp_it_shout", {"text": "x"}).text == "X"
            assert (real.starts, fake.starts) == (1, 1)

    def test_what_could_not_be_connected_is_forgotten_with_its_entry(self) -> None:
        gone = {"command": "/no/such/program", "restart": {"restart": "never"}}
        with MCPClientManager({"gone": gone, "it": FakeServer("it")}) as manager:
            assert [status.name for status in manager.status()] == ["gone", "it"]
            assert manager.apply({"it": manager.config.get_server("it")}).unchanged == ("it",)
            assert [status.name for status in manager.status()] == ["it"]

    def test_what_could_not_be_connected_is_tried_with_its_new_entry(self) -> None:
        gone = {"command": "/no/such/program", "restart": {"restart": "never"}}
        with MCPClientManager({"gone": gone}) as manager:
            assert manager.apply({"gone": gone}).unchanged == ("gone",)
            applied = manager.apply({"gone": {**gone, "command": "/no/such/other"}})
            assert "/no/such/other" in applied.failed["gone"]
            assert manager.apply({"gone": FakeServer("gone")}).replaced == ("gone",)
            assert manager.status()[0].state is ServerState.READY

    def test_servers_that_were_added_have_to_be_in_it_too(self) -> None:
        server, added = FakeServer("it"), FakeServer("added")
        with MCPClientManager({"it": server}) as manager:
            manager.add_server("added", added)
            assert manager.apply({"it": server, "added": added}).unchanged == ("added", "it")
            assert manager.apply({"it": server}).removed == ("added",)

    def test_before_anything_is_loaded_it_loads(self) -> None:
        manager = MCPClientManager({"it": FakeServer("it")})
        try:
            assert manager.apply({"other": FakeServer("other")}).started == ("other",)
        finally:
            manager.disconnect_all()

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
    def test_the_timeout_must_be_a_duration(self, timeout: Any) -> None:
        with pytest.raises(ValueError, match="timeout"):
            MCPClientManager({}).apply({}, timeout=timeout)
