"""Servers that others wrote, ready to be configured in a client; tests skip where one cannot be had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers import real_servers

DOCS = Path(__file__).parents[2] / "docs"

SETUP_TIMEOUT = 600
"""Seconds: the first test that needs a server may have to install it."""


class InteropTable:
    """What worked, for the table in the docs."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, int, str]] = []

    def add(self, server: str, transport: str, revision: str, tools: int, called: str) -> None:
        self._rows.append((server, transport, revision, tools, called))

    def __str__(self) -> str:
        lines = [
            "| server | package | transport | revision | tools | called, killed, recovered and called again |",
            "|---|---|---|---|---|---|",
        ]
        packages = {**real_servers.PYTHON_SERVERS, **real_servers.NPM_SERVERS}
        for server, transport, revision, tools, called in sorted(self._rows):
            package = " ".join(packages[server])
            lines.append(f"| `{server}` | {package} | {transport} | {revision} | {tools} | `{called}` |")
        return "\n".join(lines) + "\n"


TABLE = pytest.StashKey[InteropTable]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--interop-table", action="store_true", help="write what worked to docs/interop.md")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLE] = InteropTable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Replace the table in the docs, which is everything from its first line on."""
    if session.config.getoption("--interop-table", default=False):
        page = DOCS / "interop.md"
        text, _, _ = page.read_text().partition("| server |")
        page.write_text(text + str(session.config.stash[TABLE]))


@pytest.fixture(autouse=True)
def authorities(starts_processes: None) -> None:
    """The system's: servers are installed from the network."""


@pytest.fixture
def interop_table(pytestconfig: pytest.Config) -> InteropTable:
    return pytestconfig.stash[TABLE]


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
