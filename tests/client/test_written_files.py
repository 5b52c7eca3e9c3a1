"""Programs as users run them: which files they leave behind, and which they find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaia
from tests.waiting import PATIENCE

Json = dict[str, Any]

SOURCE = str(Path(gaia.__file__).parents[1])


def run(script: Path, folder: Path, *words: str) -> str:
    """Run a script of the user's in `folder`; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1", "DB_PASSWORD": "hunter2-hunter2"}
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(*folders: Path) -> dict[Path, bytes | None]:
    """All files below the folders with what is in them, and all folders."""
    return {
        path: path.read_bytes() if path.is_file() else None for folder in folders for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folders(tmp_path: Path, home: Path) -> tuple[Path, Path, Path]:
    """Those of the script, of the working directory, and the home."""
    project, work = tmp_path / "project", tmp_path / "work"
    project.mkdir()
    work.mkdir()
    return project, work, home


@pytest.mark.process
def test_servers_that_a_program_declares_leave_no_file(
    folders: tuple[Path, Path, Path], fault_server: Callable[..., Json]
) -> None:
    project, work, _ = folders
    script = project / "program.py"
    entry = {**fault_server(), "env": {"DB_PASSWORD": "hunter2-hunter2"}}
    script.write_text(
        "import json, os, sys\n"
        "from gaia.mcp import MCPClientManager\n"
        "entry = json.loads(sys.argv[1])\n"
        'with MCPClientManager({"db": entry}) as manager:\n'
        '    print(manager.call_tool("mcp_db_echo", {"text": "hi"})["content"][0]["text"])\n'
        '    manager.add_server("other", entry)\n'
        '    manager.remove_server("db")\n'
        "    print(manager.list_servers())\n"
    )
    before = contents(*folders)
    assert run(script, work, json.dumps(entry)) == "hi\n['other']\n"
    assert contents(*folders) == before


@pytest.mark.process
def test_a_program_finds_the_file_beside_its_script_and_saves_variables_as_they_are_written(
    folders: tuple[Path, Path, Path], fault_server: Callable[..., Json]
) -> None:
    project, work, home = folders
    script, file = project / "program.py", project / "mcp_servers.json"
    file.write_text("{}")
    script.write_text(
        "import json, sys\n"
        "from gaia.runtime import log\n"
        "from gaia.mcp import MCPClientManager\n"
        "log.configure(stream=sys.stdout)\n"
        "with MCPClientManager() as manager:\n"
        '    manager.add_server("db", json.loads(sys.argv[1]))\n'
    )
    entry = {**fault_server(), "env": {"DB_PASSWORD": "${DB_PASSWORD}"}}
    printed = run(script, work, json.dumps(entry))
    assert json.loads(file.read_text()) == {"mcpServers": {"db": entry}}
    assert not any(b"hunter2" in (content or b"") for content in contents(*folders).values())
    saves = [line for line in printed.splitlines() if "config_saved" in line]
    assert len(saves) == 1
    assert str(file) in saves[0]
    assert [path.name for path in home.rglob("*")] == [".gaia"]
