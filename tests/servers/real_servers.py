"""Servers that others wrote, found or installed for tests/interop.

Python servers that the running interpreter can import are used as they are; what is missing is installed once into
``.cache/servers`` of the repository, at pinned versions that are known to work here. Without node, npm or a registry
there is an `Unavailable` that says so, and the tests skip.
"""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

PYTHON_SERVERS = {
    "time": ("mcp-server-time", "2026.10.19"),
    "git": ("mcp-server-git", "2026.10.19"),
    "fetch": ("mcp-server-fetch", "2026.10.24"),
    "sqlite": ("mcp-server-sqlite", "2025.4.25"),
    "python-sdk": ("mcp", "2.3.0"),
    "fastmcp": ("fastmcp", "4.1.0"),
}
NPM_SERVERS = {
    "everything": ("@modelcontextprotocol/server-everything", "2026.8.31"),
    "filesystem": ("@modelcontextprotocol/server-filesystem", "2026.8.31"),
    "memory": ("@modelcontextprotocol/server-memory", "2026.8.31"),
    "sequential-thinking": ("@modelcontextprotocol/server-sequential-thinking", "2026.8.31"),
    "typescript-sdk": ("@modelcontextprotocol/server", "2.4.0"),
}
NAMES = (*PYTHON_SERVERS, *NPM_SERVERS)

SCRIPTS = Path(__file__).parents[1] / "interop" / "servers"
"""Small servers of our own, on the software development kits of others."""

ALONE: dict[str, dict[str, str]] = {
    # Written for version 1 of the SDK, and does not start with version 2.
    "sqlite": {"mcp": "1.30.0"},
    "fastmcp": {},
}
"""Python servers that get an environment of their own, and what it has besides."""

CACHE = Path(__file__).parents[2] / ".cache" / "servers"

INSTALL_TIMEOUT = 240.0
"""Seconds for one installer, and for waiting until a parallel run has installed."""

USER_ENVIRONMENT = dict(os.environ)
"""As it was before any test: installers want the user's own settings and caches, tests have another home."""


class Unavailable(Exception):
    """A server cannot be had on this machine; the message says why."""


def command_of(name: str) -> list[str]:
    """The command that starts a server, without arguments of its own; raises `Unavailable`."""
    if name in PYTHON_SERVERS:
        package, _version = PYTHON_SERVERS[name]
        if name in ("python-sdk", "fastmcp"):
            return [_python_with(name, package), str(SCRIPTS / f"{name.removeprefix('python-')}_server.py")]
        module = package.replace("-", "_")
        # The script that pip makes for this one; the module has no __main__.
        run = ["-c", f"from {module} import main; main()"] if name == "sqlite" else ["-m", module]
        return [_python_with(name, module), *run]
    package, _version = NPM_SERVERS[name]
    installed = _present(_npm_servers())
    if name == "typescript-sdk":
        return [_executable("node"), str(SCRIPTS / "typescript_server.mjs"), str(installed)]
    folder = installed / "node_modules" / package
    (script,) = json.loads((folder / "package.json").read_text())["bin"].values()
    return [_executable("node"), str(folder / script)]


def _python_with(name: str, module: str) -> str:
    if name not in ALONE and importlib.util.find_spec(module):
        return sys.executable
    return str(_present(_python_servers(name if name in ALONE else None)))


def configure(name: str, folder: Path) -> dict[str, Any]:
    """The configuration of a server that works on `folder` and leaves the rest of the machine alone."""
    command, *args = command_of(name)
    config: dict[str, Any] = {"command": command, "args": args}
    if name == "time":
        args += ["--local-timezone", "UTC"]
    elif name == "git":
        git = _executable("git")
        if not (folder / ".git").exists():
            subprocess.run([git, "init", "--quiet", str(folder)], check=True, timeout=30)
        args += ["--repository", str(folder)]
    elif name == "filesystem":
        args.append(str(folder))
    elif name == "sqlite":
        args += ["--db-path", str(folder / "test.db")]
    elif name == "memory":
        config["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return config


def _present(installed: Path | Unavailable) -> Path:
    if isinstance(installed, Unavailable):
        raise installed
    return installed


# Both installers return the reason instead of raising it, so that it is cached as well: a registry that does not answer
# is waited for once.


@functools.cache
def _python_servers(alone: str | None) -> Path | Unavailable:
    """The interpreter of an environment that has one server, or all that get along with each other."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / (version if alone is None else f"{version}-{alone}")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if alone is None:
        pins = dict(pin for name, pin in PYTHON_SERVERS.items() if name not in ALONE)
    else:
        pins = dict([PYTHON_SERVERS[alone]]) | ALONE[alone]

    def install() -> None:
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        packages = [f"{name}=={pins[name]}" for name in pins]
        _run([*uv, "pip", "install", "--quiet", "--python", str(python), *packages])

    try:
        _install_once(folder, pins, install)
    except Unavailable as reason:
        return reason
    return python


@functools.cache
def _npm_servers() -> Path | Unavailable:
    """The folder whose ``node_modules`` has all servers from npm."""
    folder = CACHE / "npm"
    pins = dict(NPM_SERVERS.values()) | {"zod": "4.6.7"}

    def install() -> None:
        packages = [f"{name}@{pins[name]}" for name in pins]
        _run([npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *packages])

    try:
        _executable("node")
        npm = _executable("npm")
        _install_once(folder, pins, install)
    except Unavailable as reason:
        return reason
    return folder


def _install_once(folder: Path, pins: Mapping[str, str], install: Callable[[], None]) -> None:
    """Make `folder` hold what is pinned, however many test runs want that at the same time."""
    # Written last: a folder without it was left by an installer that did not finish.
    record = folder / "installed.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock", timeout=INSTALL_TIMEOUT):
        if record.exists() and json.loads(record.read_text()) == pins:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        install()
        record.write_text(json.dumps(pins))


def _run(command: Sequence[str]) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, env=USER_ENVIRONMENT, timeout=INSTALL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)}: not finished after {INSTALL_TIMEOUT} s") from None
    if run.returncode != 0:
        # Both installers begin the lines that matter with the word, and surround them with much else.
        reasons = [line for line in run.stderr.splitlines() if "error" in line.lower()]
        raise Unavailable(f"{' '.join(command)}: {'; '.join(reasons[:4])}")


def _executable(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"{name} is not installed")
    return path
