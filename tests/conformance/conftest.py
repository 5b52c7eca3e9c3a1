"""The conformance suite."""

import pytest

from tests.servers import node
from tests.servers.real_servers import Unavailable


@pytest.fixture
def suite() -> list[str]:
    """The command line that runs @modelcontextprotocol/conformance. Skips where it cannot be installed."""
    try:
        return node.script("@modelcontextprotocol/conformance", "dist/index.js")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def processes(starts_processes: None) -> None:
    """Each test here starts some."""
