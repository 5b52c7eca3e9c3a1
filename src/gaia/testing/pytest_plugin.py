"""The pytest plugin of gaia-mcp: fixtures for tests of agents.

pytest imports this module in every run in an environment with gaia-mcp. So it imports nothing of the client before one
of the fixtures is used, and changes nothing for tests that use none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gaia.mcp import MCPClientManager
    from gaia.testing import FakeServer

__all__ = ["mcp_fake_server", "mcp_home", "mcp_manager", "mcp_servers"]

_USER_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "APPDATA", "LOCALAPPDATA")
"""Where programs look for a user's files before they look into the home directory."""

_READY_SECONDS = 30.0


@pytest.fixture
def mcp_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder that is the home directory during the test; the other fixtures use it, too.

    ``HOME``, ``USERPROFILE`` and what XDG names lead there, for this process and for servers that it starts. So no file
    of the person who runs the tests is read or written: no configuration, no approved tools, no logins. A
    ``.gaia/mcp_servers.json`` of the current directory is still found: tests that load configuration files change to
    ``tmp_path`` first.
    """
    home = tmp_path_factory.mktemp("home")
    # A patch of its own: a test that undoes its patches stays where it is.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("USERPROFILE", str(home))
        for name in _USER_FOLDERS:
            patch.setenv(name, str(home / name.lower()))
        yield home


@pytest.fixture
def mcp_fake_server(mcp_home: Path) -> FakeServer:
    """A `FakeServer` named ``fake`` without tools: ``mcp_fake_server.tools.add(function)`` adds one."""
    from gaia.testing import FakeServer

    return FakeServer("fake")


@pytest.fixture
def mcp_servers(mcp_fake_server: FakeServer) -> Mapping[str, Any]:
    """The servers of `mcp_manager`, by name: ``{"fake": mcp_fake_server}``.

    A fixture of this name in a ``conftest.py``, a module or a class says which there are instead.
    """
    return {"fake": mcp_fake_server}


@pytest.fixture
def mcp_manager(mcp_home: Path, mcp_servers: Mapping[str, Any]) -> Iterator[MCPClientManager]:
    """A manager of `mcp_servers`, all of which are ready; it disconnects from them after the test.

    A server that is not ready within 30 seconds is an error of the test, with the cause.
    """
    from gaia.mcp import MCPClientManager

    with MCPClientManager(mcp_servers) as manager:
        if mcp_servers:
            manager.require(timeout=_READY_SECONDS)
        yield manager
