"""The files that a program is configured with are known in one place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.clients_file import add_client
from gaia.mcp.gateway.upstream.sealing import read_state_key
from gaia.runtime import json_file
from gaia.runtime.private_files import VARIABLE, keep_private, private_files
from gaia.telemetry.exporters import JsonLinesExporter


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.runtime.private_files._files", {})


def state_key(file: Path) -> None:
    file.write_text("x" * 32)
    file.chmod(0o600)
    read_state_key(file)


USES: dict[str, Callable[[Path], Any]] = {
    "a configuration": lambda file: MCPConfig(file, create=True).add_server("a", {"command": "true"}),
    "the clients of a gateway": lambda file: add_client(file, "ann"),
    "the key of a gateway": state_key,
    "the audit": lambda file: AuditFile(file).close(),
    "spans": lambda file: JsonLinesExporter(file).shutdown(),
    "pins, logins, cassettes": lambda file: json_file.write(file, {}),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_read_or_written_is_private(tmp_path: Path, use: str) -> None:
    file = tmp_path / "file"
    USES[use](file)
    assert str(file) in private_files()


def test_a_file_that_is_not_there_is_not(tmp_path: Path) -> None:
    """Such as a project's configuration, which is looked for in the working directory."""
    assert json_file.read_bytes(tmp_path / "servers.json") == b""
    assert private_files() == []


def test_others_are_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keep_private("a")
    monkeypatch.setenv(VARIABLE, os.pathsep.join(["/etc/b.env", "", "relative", str(tmp_path / "a"), "~/c"]))
    monkeypatch.setenv("HOME", "/home/ann")
    assert private_files() == [str(tmp_path / "a"), "/etc/b.env", "/home/ann/c"]
