"""The server scenarios of @modelcontextprotocol/conformance, against `ConformanceAgent` served over HTTP.

Ticks are not counted, checks are: a scenario that checked nothing has shown nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.serving.served import http_server

REQUIRED = {"2025-11-25": (30, 68), "2026-07-28": (37, 114)}
"""How many scenarios each revision requires of a server, and how many of their checks pass at least."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("revision", REQUIRED)
def test_a_served_agent_passes_what_the_revision_requires(suite: list[str], revision: str, tmp_path: Path) -> None:
    scenarios = required_scenarios(suite, revision)
    with http_server("tests.conformance.agent:ConformanceAgent") as served:
        run = subprocess.run(
            [*suite, "server", "--url", served.url, "--requirements", revision, "--output-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=240,
        )
    checks = {scenario: checks_of(tmp_path, scenario) for scenario in scenarios}
    failed = {scenario: counts for scenario, counts in checks.items() if counts["FAILURE"] or counts["WARNING"]}
    passed = sum(counts["SUCCESS"] for counts in checks.values())
    print(f"{revision}: {len(scenarios)} scenarios, {passed} checks passed")
    assert not failed, run.stdout
    assert [scenario for scenario, counts in checks.items() if not counts["SUCCESS"]] == []
    assert run.returncode == 0, run.stdout
    expected_scenarios, expected_checks = REQUIRED[revision]
    assert len(scenarios) == expected_scenarios
    assert passed >= expected_checks


def required_scenarios(suite: list[str], revision: str) -> list[str]:
    listing = subprocess.run(
        [*suite, "list", "--server", "--requirements", revision], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    server, _, _ = listing.partition("Server scenarios")[2].partition("\n\n")
    return re.findall(r"^  - (\S+)$", server, re.MULTILINE)


def checks_of(results: Path, scenario: str) -> Counter[str]:
    """How many checks of a scenario ended how."""
    (folder,) = (
        one for one in results.iterdir() if re.fullmatch(rf"server-{re.escape(scenario)}-\d{{4}}-.*", one.name)
    )
    return Counter(check["status"] for check in json.loads((folder / "checks.json").read_text()))
