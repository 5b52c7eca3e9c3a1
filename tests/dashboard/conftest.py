"""The dashboard's page in a real browser: Chromium without a window, driven by Playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.served_dashboard import Served, served_dashboard, trace_with
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Fewer processes: each page would otherwise start one or two.
    "--renderer-process-limit=1",
    "--in-process-gpu",
    "--disable-software-rasterizer",
    "--disable-extensions",
]
MILLISECONDS = PATIENCE * 1000
"""Until something that should be on the page is missing."""


@pytest.fixture(autouse=True)
def no_leaks(starts_processes: None) -> None:
    """Chromium's processes come and go as it sees fit; the tests of the API look for leaks of the dashboard's own."""


@pytest.fixture(autouse=True)
def tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tool calls have spans."""
    trace_with(TracerProvider(), monkeypatch)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of the system. Skips where there is none, or no Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    program = os.environ.get("GAIA_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium found: install it, or say where it is with GAIA_CHROMIUM")
    with playwright.sync_playwright() as driver:
        # A new profile each time, in a temporary folder.
        chromium = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own. Fails the test if a script fails, or the browser has anything to complain about."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    context.set_default_timeout(MILLISECONDS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    yield opened
    context.close()
    # That a request was refused is what some tests are about.
    assert [line for line in complaints if "Failed to load resource" not in line] == []


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Connect to servers and serve their dashboard: ``serve(demo={"command": …})``."""
    with contextlib.ExitStack() as stack:
        yield lambda **servers: stack.enter_context(served_dashboard(tmp_path, servers))
