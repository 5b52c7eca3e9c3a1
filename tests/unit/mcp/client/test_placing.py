from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.wire import HostSettings

ENTRY = {"command": "python", "args": ["server.py"], "placement": {"lease": 7}, "timeout": 12}


def context_of(entry: dict[str, Any]) -> PlacedContext:
    context = MCPClient.from_config("it", entry)._engine.session._context  # type: ignore[attr-defined]
    assert isinstance(context, PlacedContext)
    return context


def settings_of(entry: dict[str, Any]) -> HostSettings:
    return context_of(entry).settings()


def test_the_host_gets_what_the_entry_says() -> None:
    settings = settings_of({**ENTRY, "standby": True, "drainTimeout": 3})
    assert (settings.timeout, settings.lease, settings.standby, settings.drain_timeout) == (12, 7, True, 3)
    assert settings.launch.command == "python"


def test_variables_are_filled_in_at_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of({**ENTRY, "env": {"API_KEY": "${KEY_OF_THE_DAY}"}})
    for key in ("first", "second"):
        monkeypatch.setenv("KEY_OF_THE_DAY", key)
        assert context.settings().launch.env == {"API_KEY": key}


def test_a_lazy_server_that_is_not_known_is_started() -> None:
    settings = settings_of({**ENTRY, "lazy": True})
    assert (settings.lazy, settings.known) == (True, None)
    assert context_of({**ENTRY, "lazy": True}).is_lazy
