"""Say which environments of tox are worth a second run, after a first one in which tests failed.

Three environments with a dozen processes share a small machine, and now and then a test finds that one of its own
threads or servers got no processor for seconds. Such a test passes when it runs again, by itself. It is a defect of the
test or of what it tests, so it is printed for all to see; but it says nothing about the change that is checked.

Reads the results of tox (``--result-json``) and what pytest remembers in the folder of each environment. Prints the
names of the environments with commas, and the tests on standard error. The exit status is 1 if a second run cannot
help: an environment failed otherwise than by tests, or more than three tests failed, which is no coincidence.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MOST = 3


def main(results: Path, environments: Path) -> int:
    """`results` is the file that tox wrote, `environments` the folder in which they are."""
    ran = json.loads(results.read_text())["testenvs"]
    names = [name for name, found in ran.items() if not found.get("result", {}).get("success", True)]
    failed = {name: failed_tests(environments / name) for name in names}
    for name, tests in failed.items():
        print(f"{name}: {', '.join(tests) or 'failed otherwise than by a test'}", file=sys.stderr)
    if not failed or not all(failed.values()) or sum(map(len, failed.values())) > MOST:
        return 1
    print(",".join(failed))
    return 0


def failed_tests(environment: Path) -> list[str]:
    """What failed when pytest ran last; nothing if it did not run."""
    try:
        return list(json.loads((environment / ".pytest_cache/v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
