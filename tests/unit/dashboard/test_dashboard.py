"""`Dashboard`: where it is, who has its token, and how it ends."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.dashboard import Dashboard
from gaia.dashboard.dashboard import DEFAULT_PORT
from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.events import ServerState
from gaia.serving.options import HttpOptions, UnsafeOptions
from tests.served_dashboard import Served


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MCPClientManager]:
    """Without servers."""
    with MCPClientManager(MCPConfig(tmp_path / "servers.json", create=True)) as manager:
        yield manager


class TestToken:
    def test_each_dashboard_has_one_that_cannot_be_guessed_or_the_one_that_is_given(
        self, manager: MCPClientManager
    ) -> None:
        tokens = {Dashboard(manager).token for _ in range(20)}
        assert len(tokens) == 20
        assert all(len(token) >= 32 for token in tokens)
        assert Dashboard(manager, HttpOptions(token="open-sesame")).token == "open-sesame"
        with pytest.raises(UnsafeOptions, match="empty"):
            Dashboard(manager, HttpOptions(token=""))

    def test_the_token_is_in_the_fragment_of_the_address(self, demo: Served) -> None:
        assert demo.dashboard.url == f"http://127.0.0.1:{demo.port}/#token={demo.dashboard.token}"
        assert len(demo.dashboard.token) >= 32


class TestServing:
    def test_it_is_served_once_it_is_started_and_once_only(self, manager: MCPClientManager) -> None:
        dashboard = Dashboard(manager, HttpOptions(port=0))
        with pytest.raises(RuntimeError, match="not being served"):
            _ = dashboard.url
        try:
            assert dashboard.start() == dashboard.start() == dashboard.url
        finally:
            dashboard.close()

    def test_a_port_that_is_taken_is_told_and_leaves_nothing_behind(self, manager: MCPClientManager) -> None:
        with Dashboard(manager, HttpOptions(port=0)) as first:
            port = int(first.url.split("/#")[0].rsplit(":", 1)[1])
            second = Dashboard(manager, HttpOptions(port=port))
            with contextlib.closing(second), pytest.raises(OSError, match="in use"):
                second.start()

    def test_without_options_the_port_is_the_documented_one(self, manager: MCPClientManager) -> None:
        assert DEFAULT_PORT == 8484
        assert Dashboard(manager)._options.port == DEFAULT_PORT


class TestEnding:
    def test_the_manager_goes_on(self, demo: Served) -> None:
        demo.dashboard.close()
        demo.dashboard.close()
        client = demo.manager.get_client("demo")

        assert client is not None
        assert client.state is ServerState.READY
        with pytest.raises(RuntimeError, match="not being served"):
            _ = demo.dashboard.url
