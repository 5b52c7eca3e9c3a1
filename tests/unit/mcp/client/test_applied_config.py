"""What has become of changes."""

from __future__ import annotations

import threading

import pytest

from gaia.mcp.client import configured_servers as config_changes
from gaia.mcp.client.configured_servers import ServerChanges
from tests.waiting import PATIENCE


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
