"""Look for known vulnerabilities in the packages of this environment, with pip-audit.

The exit status is 1 if there are any. Where the vulnerability service cannot be reached, or knows none of the packages,
nothing was audited: that is said, and is no failure, because it says nothing about the packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

COMMAND = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off"]
OWN = "gaia-mcp"
UNREACHABLE = (
    "ConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "NameResolutionError",
    "ServiceError",
)


def main() -> int:
    """Run pip-audit, and tell what it has found."""
    run = subprocess.run([*COMMAND, "--format", "json"], capture_output=True, text=True)
    try:
        dependencies: list[dict[str, Any]] = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (run.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        if any(name in run.stderr for name in UNREACHABLE):
            print(f"SKIPPED: nothing was audited, because the vulnerability service cannot be reached: {reason[:300]}")
            return 0
        print(f"pip-audit failed: {reason}")
        return 1
    others = [each for each in dependencies if each["name"] != OWN]
    audited = [each for each in others if "vulns" in each]
    if not audited:
        print(
            f"SKIPPED: nothing was audited, because the service that was asked knows none of the {len(others)} packages"
        )
        return 0
    for each in audited:
        for vulnerability in each["vulns"]:
            fixed = ", ".join(vulnerability.get("fix_versions") or ()) or "no version yet"
            print(f"{each['name']} {each['version']}: {vulnerability['id']}, fixed in {fixed}")
    for each in others:
        if "vulns" not in each:
            print(f"not audited: {each['name']} ({each.get('skip_reason')})")
    vulnerable = sum(bool(each["vulns"]) for each in audited)
    print(f"{len(audited)} packages audited, {vulnerable} with known vulnerabilities")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
