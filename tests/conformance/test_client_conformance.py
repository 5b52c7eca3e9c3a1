"""The client scenarios of @modelcontextprotocol/conformance, played by `client.py`.

Checks are counted, not ticks: a scenario that checked nothing has shown nothing. What a revision does not require
(extensions of the protocol) is run by the suite and shown here, and decides nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_blocks.commands import commands

CLIENT = Path(__file__).with_name("client.py")
BRIDGE = Path(__file__).with_name("stdio_bridge.py")

REQUIRED = {"2025-11-25": (18, 240), "2026-07-28": (32, 400)}
"""How many scenarios each revision requires of a client, and how many of their checks pass at least."""

SECONDS = 540


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What runs `client.py`, in a fork of a process that has imported gaia: the import takes longer than a scenario."""
    with commands(tmp_path_factory.mktemp("commands"), sys.executable) as folder:
        yield f"{folder / 'python-block'} {CLIENT} {CLIENT.name}"


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("revision", REQUIRED)
def test_a_client_passes_what_the_revision_requires(
    suite: list[str], command: str, revision: str, tmp_path: Path
) -> None:
    required = required_scenarios(suite, revision)
    results = tmp_path / "results"
    # Split at spaces, and run by a shell.
    options = ["--requirements", revision, "--timeout", str(SECONDS * 1000), "--output-dir", str(results)]
    run = subprocess.run(
        [*suite, "client", "--command", command, *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "GAIA_CONFORMANCE_TURN": str(tmp_path / "turn.lock")},
    )
    checks = {checked.parent: checks_of(checked) for checked in sorted(results.glob("**/checks.json"))}
    scenarios = {scenario_of(folder, results): counts for folder, counts in checks.items()}
    print(table(revision, scenarios, required))
    assert required <= scenarios.keys(), run.stdout
    unsuccessful = [name for name in required if scenarios[name]["FAILURE"] or scenarios[name]["WARNING"]]
    assert unsuccessful == [], run.stdout
    assert [name for name in required if not scenarios[name]["SUCCESS"]] == []
    expected_scenarios, expected_checks = REQUIRED[revision]
    assert len(required) == expected_scenarios
    assert sum(scenarios[name]["SUCCESS"] for name in required) >= expected_checks


STDIO = {
    "2025-11-25": ("initialize", "tools_call", "elicitation-sep1034-client-defaults"),
    "2026-07-28": ("tools_call", "request-metadata", "sep-2322-client-request-state", "json-schema-ref-no-deref"),
}
"""The required scenarios that are not about HTTP itself: its headers, streams and logins."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("revision", "scenario"), [(rev, name) for rev, names in STDIO.items() for name in names])
def test_a_client_on_stdio_passes_the_same_checks(
    suite: list[str], command: str, revision: str, scenario: str, tmp_path: Path
) -> None:
    options = ["--scenario", scenario, "--spec-version", revision, "--timeout", "120000", "--output-dir", str(tmp_path)]
    run = subprocess.run(
        [*suite, "client", "--command", command, *options],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "GAIA_CONFORMANCE_BRIDGE": str(BRIDGE)},
    )
    (checked,) = tmp_path.glob("**/checks.json")
    checks = checks_of(checked)
    print(f"{revision} {scenario} over stdio: {checks['SUCCESS']} checks passed")
    assert run.returncode == 0, run.stdout + run.stderr
    assert not checks["FAILURE"], run.stdout
    assert not checks["WARNING"], run.stdout
    assert checks["SUCCESS"]


def required_scenarios(suite: list[str], revision: str) -> set[str]:
    listing = subprocess.run(
        [*suite, "list", "--client", "--requirements", revision], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    client, _, _ = listing.partition("Client scenarios")[2].partition("\n\n")
    return set(re.findall(r"^  - (\S+)", client, re.MULTILINE))


def scenario_of(folder: Path, results: Path) -> str:
    """The scenario whose results are in a folder, which is named after it and the time."""
    return re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", folder.relative_to(results).as_posix())


def checks_of(file: Path) -> Counter[str]:
    """How many checks of a scenario ended how."""
    return Counter(check["status"] for check in json.loads(file.read_text()))


def table(revision: str, scenarios: dict[str, Counter[str]], required: set[str]) -> str:
    lines = [f"{revision}: scenario, checks passed, checks failed"]
    for name, counts in sorted(scenarios.items(), key=lambda item: (item[0] not in required, item[0])):
        remark = "" if name in required else "  (not required)"
        lines.append(f"  {name:45} {counts['SUCCESS']:4} {counts['FAILURE']:4}{remark}")
    for what, names in ((f"{len(required)} required", required), ("all", scenarios.keys())):
        passed = sum(scenarios[name]["SUCCESS"] for name in names if name in scenarios)
        failed = sum(scenarios[name]["FAILURE"] for name in names if name in scenarios)
        lines.append(f"  {what}: {passed} checks passed, {failed} failed")
    return "\n".join(lines)
