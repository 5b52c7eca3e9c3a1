"""The page about a gateway that runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gaia.dashboard import Dashboard
from gaia.dashboard.servers import GatewayWatch
from gaia.mcp.client import MCPClientManager
from gaia.serving.options import HttpOptions
from gaia.testing import FakeServer
from tests.unit.mcp.gateway.operations.test_status import SESSION, STATUS

pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_clients_sessions_and_limits_are_shown_and_nothing_can_be_stopped(page: Page) -> None:
    program = msgspec.structs.replace(SESSION, program="<b>bold</b> 1")
    status = msgspec.structs.replace(STATUS, sessions=[program])
    with MCPClientManager({"it": FakeServer("it")}) as manager:
        manager.load_from_config()
        watch = GatewayWatch(lambda: status, FakeServer, manager, status)
        with Dashboard(manager, HttpOptions(port=0), gateway=watch) as dashboard:
            page.goto(dashboard.url)
            panel = page.get_by_role("region", name="Gateway")
            expect(panel).to_contain_text("gw1, 1 of at most 10 sessions")
            expect(panel).to_contain_text("a.json: it is wrong")
            expect(panel.get_by_role("table", name="Clients")).to_contain_text("small")
            expect(panel.get_by_role("table", name="Sessions")).to_contain_text("<b>bold</b> 1")
            expect(panel.get_by_role("table", name="Limits")).to_contain_text("client 'ci'")
            page.get_by_role("navigation", name="Servers").get_by_role("link", name="it").click()
            page.get_by_role("heading", name="it").wait_for()
            expect(page.get_by_role("button", name="Restart")).to_have_count(0)
            expect(page.get_by_role("button", name="Stop")).to_have_count(0)
