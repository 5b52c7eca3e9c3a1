"""The pytest plugin of gaia-mcp: fixtures for tests of agents.

pytest imports this module in every run in an environment with gaia-mcp. So the module imports the client only when a
fixture is used, and does not affect tests without its fixtures.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gaia.mcp import MCPClientManager
    from gaia.testing import FakeServer

_USER_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "APPDATA", "LOCALAPPDATA")
"""Variables for folders of user files that programs prefer to the home directory."""

_NOT_IN_NAMES = re.compile(r"[^\w.=\-\[\]]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--mcp-record``. For pytest."""
    parser.getgroup("gaia-mcp").addoption(
        "--mcp-record",
        choices=("none", "once", "new_episodes", "all"),
        help="what mcp_cassette does: only replay (the default where CI is set), record if there is no cassette (the "
        "default elsewhere), record what is missing, or record anew",
    )


@pytest.fixture
def mcp_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder that is the home directory during the test. The other fixtures use it too.

    ``HOME``, ``USERPROFILE`` and the variables of XDG point there, for this process and for servers that it starts. So
    the test neither reads nor writes the user's own configuration, approved tools and logins. A
    ``.gaia/mcp_servers.json`` of the current directory is still found: tests that load configuration files change to
    ``tmp_path`` first.
    """
    home = tmp_path_factory.mktemp("home")
    # A separate patch, so that a test that undoes its own patches keeps this one.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("USERPROFILE", str(home))
        for name in _USER_FOLDERS:
            patch.setenv(name, str(home / name.lower()))
        yield home


@pytest.fixture
def mcp_fake_server(mcp_home: Path) -> type[FakeServer]:
    """Makes servers in memory: ``mcp_fake_server("time", tools=[now])`` is a `FakeServer`."""
    from gaia.testing import FakeServer

    return FakeServer


@pytest.fixture
def mcp_manager(mcp_home: Path) -> Iterator[MCPClientManager]:
    """A manager without servers. It is disconnected from all servers after the test.

    ``mcp_manager.add_server("time", server)`` connects it to a server: a fake, one of a cassette or a real one. When
    the call returns, the server is ready and its tools are listed. No file is read or written.
    """
    from gaia.mcp import MCPClientManager

    with MCPClientManager({}) as manager:
        yield manager


@pytest.fixture
def mcp_cassette(
    request: pytest.FixtureRequest, mcp_home: Path
) -> Callable[[Mapping[str, Mapping[str, Any]]], AbstractContextManager[MCPClientManager]]:
    """Makes a manager whose servers' answers are recorded.

    ``with mcp_cassette({"time": {"command": "uvx", "args": ["mcp-server-time"]}}) as manager: …``

    The file is ``cassettes/<module>/<test>.json`` beside the test's module. The option ``--mcp-record`` says whether
    real servers are asked; see `gaia.testing.use_cassette`. By default they never are where ``CI`` is set.
    """
    from gaia.testing import use_cassette

    test = _NOT_IN_NAMES.sub("_", request.node.nodeid.partition("::")[2].replace("::", "."))
    file = request.path.parent / "cassettes" / request.path.stem / f"{test}.json"
    return functools.partial(use_cassette, file, mode=request.config.getoption("--mcp-record"))
