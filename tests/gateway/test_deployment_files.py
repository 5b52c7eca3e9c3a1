"""The files of docs/deployment: checked by the programs that they are for, and by the command that they start."""

import getpass
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gaia.cli.main import app
from gaia.cli.options import Options

FILES = Path(__file__).parents[2] / "docs" / "deployment"

SYSTEMD = shutil.which("systemd-analyze")


def entry_point() -> list[str]:
    line = next(
        line for line in (FILES / "Dockerfile").read_text("utf-8").splitlines() if line.startswith("ENTRYPOINT ")
    )
    words: list[str] = json.loads(line.removeprefix("ENTRYPOINT "))
    return words


def unit_command() -> list[str]:
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", (FILES / "gaia-gateway.service").read_text("utf-8"))
    return shlex.split(line)


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text("utf-8")))


def container() -> dict[str, Any]:
    (workload,) = (one for one in manifests() if one["kind"] == "StatefulSet")
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "words", [entry_point(), unit_command(), [*entry_point(), *container()["args"]]], ids=["docker", "unit", "pod"]
)
def test_the_command_takes_its_options(words: list[str]) -> None:
    program, *rest = words
    assert program.endswith("gaia")
    assert rest[:2] == ["mcp", "gateway"]
    command = typer.main.get_command(app).commands["mcp"].commands["gateway"]  # type: ignore[attr-defined]
    # Raises for what it does not take.
    with command.make_context("gateway", rest[2:], obj=Options()):
        pass


@pytest.mark.process
@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (FILES / "gaia-gateway.service").read_text("utf-8")
    # What this machine does not have.
    text = text.replace("/opt/gaia/bin/gaia", shutil.which("true") or "")
    text = text.replace("User=gaia\n", f"User={getpass.getuser()}\n")
    unit = tmp_path / "gaia-gateway.service"
    unit.write_text(text)
    assert SYSTEMD is not None
    checked = subprocess.run([SYSTEMD, "verify", str(unit)], capture_output=True, text=True, check=False)

    # Other units of the machine may have mistakes of their own.
    assert [line for line in checked.stderr.splitlines() if unit.name in line and "not safe" not in line] == []


def test_kubernetes_accepts_the_manifest() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in manifests():
        validate.validate(document, "1.32", strict=True)


def test_probes_send_a_host_name_that_the_gateway_has() -> None:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[name]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        assert container()[name]["httpGet"]["path"] in ("/health", "/ready")
