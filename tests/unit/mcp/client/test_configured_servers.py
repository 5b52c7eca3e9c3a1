"""Another configuration for a manager that runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client import configured_servers as config_changes
from gaia.mcp.client.configured_servers import ServerChanges
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock, FakeServer
from tests.waiting import PATIENCE


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


class TestChanges:
    def test_each_is_made_and_reported(self) -> None:
        changes = ServerChanges()
        changes.begin("b", "started", lambda: None)
        changes.begin("a", "started", lambda: None)
        changes.begin("c", "replaced", lambda: "no such file")
        changes.begin("d", "removed", lambda: None)
        changes.wait(PATIENCE)
        result = changes.result(["e"])
        assert (result.started, result.replaced, result.removed) == (("a", "b"), (), ("d",))
        assert (result.failed, result.unchanged, result.pending) == ({"c": "no such file"}, ("e",), ())

    def test_what_takes_longer_is_pending(self) -> None:
        changes, may_end = ServerChanges(), threading.Event()
        thread = changes.begin("slow", "replaced", lambda: None if may_end.wait(PATIENCE) else "late")
        changes.begin("quick", "started", lambda: None)
        while not changes.result([]).started:
            changes.wait(0.01)
        assert changes.result([]).pending == ("slow",)
        may_end.set()
        changes.wait(None)
        assert changes.result([]).replaced == ("slow",)
        assert thread is not None
        assert thread.name == "mcp-slow-apply"

    def test_without_a_thread_it_is_made_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class NoThread:
            def __init__(self, *_: object) -> None: ...

            def start(self) -> None:
                raise RuntimeError("can't start new thread")

        monkeypatch.setattr(config_changes, "EngineThread", NoThread)
        changes = ServerChanges()
        assert changes.begin("it", "started", lambda: None) is None
        changes.wait(0)
        assert changes.result([]).started == ("it",)
