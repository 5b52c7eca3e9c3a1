"""What a client was made of, and what has become of changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import config_changes
from gaia.mcp.client.config_changes import Changes, Origin
from gaia.mcp.errors import ConfigError
from tests.waiting import PATIENCE

ENTRY = {"command": "uvx", "args": ["x"]}


class TestOrigin:
    @pytest.mark.parametrize(
        "same",
        [
            {"args": ["x"], "command": "uvx"},
            {**ENTRY, "timeout": 30, "drainTimeout": 30.0},
            {**ENTRY, "somethingElse": 1},
        ],
    )
    def test_entries_that_mean_the_same_are_equal(self, same: dict[str, Any]) -> None:
        assert Origin("it", same, None) == Origin("it", ENTRY, None)

    @pytest.mark.parametrize(
        "other",
        [
            {**ENTRY, "args": ["y"]},
            {**ENTRY, "env": {"A": "${B}"}},
            {**ENTRY, "disabledTools": ["x"]},
            {**ENTRY, "idleStop": 5},
            # The manager's policy may be another one than the default.
            {**ENTRY, "restart": {}},
        ],
    )
    def test_others_are_not(self, other: dict[str, Any]) -> None:
        assert Origin("it", other, None) != Origin("it", ENTRY, None)

    def test_another_file_has_other_pins(self) -> None:
        assert Origin("it", ENTRY, Path("/a.json")) != Origin("it", ENTRY, Path("/b.json"))

    def test_an_entry_must_be_usable(self) -> None:
        with pytest.raises(ConfigError, match="'it'"):
            Origin("it", {"command": 3}, None)

    def test_servers_in_memory_are_remembered_in_memory_only(self) -> None:
        assert Origin("it", ENTRY, None).memory.recall() is None


class TestChanges:
    def test_each_is_made_and_reported(self) -> None:
        changes = Changes()
        changes.begin("b", "started", lambda: None)
        changes.begin("a", "started", lambda: None)
        changes.begin("c", "replaced", lambda: "no such file")
        changes.begin("d", "removed", lambda: None)
        changes.wait(PATIENCE)
        result = changes.result(["e"])
        assert (result.started, result.replaced, result.removed) == (("a", "b"), (), ("d",))
        assert (result.failed, result.unchanged, result.pending) == ({"c": "no such file"}, ("e",), ())

    def test_what_takes_longer_is_pending(self) -> None:
        changes, may_end = Changes(), threading.Event()
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
        changes = Changes()
        assert changes.begin("it", "started", lambda: None) is None
        assert changes.result([]).started == ("it",)
