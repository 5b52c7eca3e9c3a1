"""The plugin in runs of pytest of its own, as users have them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gaia
from tests.waiting import PATIENCE

SUITE = '''
import os
import sys
import time
from pathlib import Path

import pytest

HOME = os.environ["HOME"]


def test_nothing_is_loaded_and_nothing_is_changed():
    loaded = [name for name in sys.modules if name.split(".")[0] == "gaia"]
    names = ["gaia", "gaia.runtime", "gaia.runtime.lazy_names", "gaia.testing", "gaia.testing.pytest_plugin"]
    assert sorted(loaded) == names
    assert os.environ["HOME"] == HOME


def now() -> str:
    """Tell the time."""
    return "noon"


def test_a_manager_and_a_fake(mcp_manager, mcp_fake_server):
    server = mcp_fake_server("time", tools=[now])
    mcp_manager.add_server("time", server)
    assert mcp_manager.call_tool("mcp_time_now").text == "noon"
    server.crash(tool="now")
    assert mcp_manager.call_tool("mcp_time_now")["error_type"] == "server_crashed"
    assert mcp_manager.call_tool("mcp_time_now").text == "noon"


def test_another_manager(mcp_manager):
    assert mcp_manager.list_servers() == []
    assert mcp_manager.config.config_file is None


@pytest.mark.parametrize("fixture", ["mcp_home", "mcp_manager", "mcp_fake_server"])
def test_no_home(fixture, request):
    request.getfixturevalue(fixture)
    home = Path.home()
    assert str(home) == os.environ["HOME"] == os.environ["USERPROFILE"] != HOME
    assert list(home.iterdir()) == []
    assert Path(os.environ["XDG_CONFIG_HOME"]).parent == home
    from gaia.mcp import MCPClient, MCPConfig, MCPClientManager

    assert MCPConfig().get_servers() == {}
    MCPConfig().add_server("time", {"command": "uvx"})
    assert (home / ".gaia" / "mcp_servers.json").exists()


def test_the_home_is_back():
    assert os.environ["HOME"] == HOME
    assert "XDG_CONFIG_HOME" not in os.environ
    assert list(Path(HOME).iterdir()) == []
'''


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin and no other, so that neither pytest-asyncio nor anyio are there."""
    source = str(Path(gaia.__file__).parents[1])
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": source}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gaia.testing.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.process
def test_a_suite_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(SUITE, "utf-8")
    run = run_pytest(tmp_path)
    assert "7 passed" in run.stdout, run.stdout + run.stderr
    assert run.returncode == 0


@pytest.mark.process
def test_the_fixtures_say_what_they_are(tmp_path: Path) -> None:
    shown = run_pytest(tmp_path, "--fixtures").stdout
    for fixture in ("mcp_home", "mcp_manager", "mcp_fake_server", "mcp_cassette"):
        assert fixture in shown
    assert "no docstring available" not in shown


CASSETTES = """
import pytest

from gaia.testing import FakeServer


def now() -> str:
    return "noon"


@pytest.mark.parametrize("zone", ["Europe/Oslo", "UTC"])
def test_a_time(mcp_cassette, zone):
    with mcp_cassette({"time": FakeServer("time", tools=[now])}) as manager:
        assert manager.call_tool("mcp_time_now").text == "noon"
"""


@pytest.mark.process
def test_a_cassette_of_a_test_is_recorded_on_request_and_never_in_continuous_integration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_time.py").write_text(CASSETTES, "utf-8")
    monkeypatch.setenv("CI", "true")

    refused = run_pytest(tmp_path)
    assert "2 failed" in refused.stdout, refused.stdout
    assert "there is no cassette" in refused.stdout
    assert not (tmp_path / "cassettes").exists()
    for mode in ("once", "none"):
        assert "2 passed" in run_pytest(tmp_path, f"--mcp-record={mode}").stdout
    files = [path.name for path in (tmp_path / "cassettes" / "test_time").iterdir()]
    assert sorted(files) == ["test_a_time[Europe_Oslo].json", "test_a_time[UTC].json"]


def test_pytest_finds_it() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
    # By the module's name it is the same plugin for `-p` and ``PYTEST_PLUGINS``.
    assert project["entry-points"]["pytest11"] == {"gaia.testing.pytest_plugin": "gaia.testing.pytest_plugin"}
