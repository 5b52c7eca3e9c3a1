"""Servers that others wrote, ready to be configured in a client; tests skip where one cannot be had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers import real_servers

SETUP_TIMEOUT = 600
"""Seconds: the first test that needs a server may have to install it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder the time that installing takes."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SETUP_TIMEOUT))


@pytest.fixture
def configure_real_server(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Make the configuration of a server by its name in `real_servers.NAMES`; it works in ``tmp_path / name``."""

    def configure(name: str) -> dict[str, Any]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        try:
            return real_servers.configure(name, folder)
        except real_servers.Unavailable as reason:
            pytest.skip(str(reason))

    return configure


@pytest.fixture
def time_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """mcp-server-time."""
    return configure_real_server("time")


@pytest.fixture
def git_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """mcp-server-git, on a new and empty repository."""
    return configure_real_server("git")


@pytest.fixture
def everything_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """server-everything."""
    return configure_real_server("everything")


@pytest.fixture
def filesystem_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """server-filesystem, on an empty folder: the last of its arguments."""
    return configure_real_server("filesystem")


@pytest.fixture
def memory_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """server-memory, with an empty memory."""
    return configure_real_server("memory")


@pytest.fixture
def sequential_thinking_server(configure_real_server: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """server-sequential-thinking."""
    return configure_real_server("sequential-thinking")


@pytest.fixture(params=real_servers.NAMES)
def real_server(
    request: pytest.FixtureRequest, configure_real_server: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Each of the servers in turn."""
    return configure_real_server(request.param)
