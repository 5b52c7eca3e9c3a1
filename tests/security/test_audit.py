"""The audit of dependencies tells what it has found from what it could not look at."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parents[2] / ".ci" / "audit.py"

CLEAN = {"name": "orjson", "version": "3.11", "vulns": []}
HOLED = {"name": "somelib", "version": "1.0", "vulns": [{"id": "GHSA-xxxx", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found on PyPI"}
OURSELVES = {"name": "gaia-mcp", "skip_reason": "Dependency not found on PyPI"}

OFFLINE = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded"


def audit(tmp_path: Path, said: str, complaint: str = "", code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run the audit with a pip-audit that says this."""
    module = tmp_path / "pip_audit.py"
    module.write_text(f"import sys\nprint({said!r})\nprint({complaint!r}, file=sys.stderr)\nsys.exit({code})\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, timeout=PATIENCE)


def report(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_packages_without_vulnerabilities_pass(tmp_path: Path) -> None:
    result = audit(tmp_path, report(CLEAN, UNKNOWN, OURSELVES))
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "not audited: rich (Dependency not found on PyPI)",
        "1 packages audited, 0 with known vulnerabilities",
    ]


def test_a_vulnerability_fails_and_says_what_mends_it(tmp_path: Path) -> None:
    result = audit(tmp_path, report(CLEAN, HOLED), code=1)
    assert result.returncode == 1
    assert "somelib 1.0: GHSA-xxxx, fixed in 1.1" in result.stdout


@pytest.mark.parametrize(
    ("said", "complaint"), [("", OFFLINE), (report(UNKNOWN, OURSELVES), "No known vulnerabilities")]
)
def test_what_was_not_audited_is_never_called_clean(tmp_path: Path, said: str, complaint: str) -> None:
    result = audit(tmp_path, said, complaint, code=1 if complaint == OFFLINE else 0)
    assert result.returncode == 0
    assert result.stdout.startswith("SKIPPED: nothing was audited")


def test_an_audit_that_breaks_is_a_failure(tmp_path: Path) -> None:
    result = audit(tmp_path, "", "pip-audit: error: unrecognized arguments", code=2)
    assert result.returncode == 1
    assert "unrecognized arguments" in result.stdout
