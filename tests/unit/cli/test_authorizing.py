"""`gaia mcp login` and `gaia mcp logout`, at a real authorization server."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers.protected_server import Protected, protected_server
from tests.unit.cli.fixture_types import Invoke, Told


@pytest.fixture(scope="module")
def running() -> Iterator[Protected]:
    with protected_server() as server:
        yield server


@pytest.fixture
def server(running: Protected, home: Path) -> Protected:
    """Configured under the name "notes", and as if it had just been started."""
    running.accounts.revoke_all()
    running.accounts.clients.clear()
    running.accounts.refuses_logins = False
    (home / ".gaia").mkdir()
    entries = {"notes": {"url": running.url}, "local": {"command": "true"}}
    (home / ".gaia" / "mcp_servers.json").write_text(json.dumps({"mcpServers": entries}))
    return running


@pytest.fixture
def pages(mocker: Any) -> Iterator[list[str]]:
    """The addresses that a browser was opened at. It goes where it is sent."""
    opened: list[str] = []
    visits: list[threading.Thread] = []

    def browse(url: str) -> bool:
        opened.append(url)
        visit = threading.Thread(target=lambda: httpx2.get(url, follow_redirects=True, trust_env=False))
        visits.append(visit)
        visit.start()
        return True

    mocker.patch("webbrowser.open", side_effect=browse)
    yield opened
    for visit in visits:
        visit.join()


class TestLogin:
    def test_opens_the_browser_once_and_keeps_the_login_until_the_logout(
        self, server: Protected, invoke: Invoke, output: Told, failed: Told, invoke_json: Invoke, pages: list[str]
    ) -> None:
        assert "gaia mcp login notes" in failed("call", "notes", "who")
        assert invoke_json("logout", "notes") == {"server": "notes", "forgotten": False}
        result = invoke("login", "notes")
        assert result.exit_code == 0, result.output
        assert "Logged in at notes." in result.stdout
        assert pages[0] in result.stderr
        assert "read write" in output("call", "notes", "who")
        assert "There is a login at notes already; it works." in output("login", "notes")
        assert len(pages) == 1
        logged_in = invoke_json("login", "notes", "--scope", "write")
        assert logged_in == {"server": "notes", "outcome": "logged_in", "new": True}
        assert "scope=write" in pages[1], "another permission takes a new login"
        assert "Logged out of notes." in output("logout", "notes")
        assert invoke("call", "notes", "who").exit_code == 1

    def test_without_a_browser_only_the_address_is_printed(
        self, server: Protected, invoke: Invoke, pages: list[str]
    ) -> None:
        result = invoke("login", "notes", "--no-browser", "--timeout", "1")
        assert pages == []
        assert f"{server.origin}/authorize?" in result.stderr
        assert result.exit_code == 1
        assert "was not finished within" in result.stderr

    def test_a_refusal_is_reported_and_a_server_that_is_started_here_has_no_login(
        self, server: Protected, failed: Told, refused: Told, pages: list[str]
    ) -> None:
        server.accounts.refuses_logins = True
        assert "access_denied" in failed("login", "notes")
        assert "there is nothing to log in at" in refused("login", "local")
