"""The program that starts a server: whether it is there, runs, and is new enough."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor.diagnosis import Check, Verdict, failed, for_missing_program, ok, skipped, warned
from gaia.mcp.errors import MCPError
from gaia.mcp.transports.command import argument_vector, find_executable, server_environment
from gaia.runtime.redaction import Redactor, url_credentials

_VERSION_SECONDS = 10.0
_SHEBANG_BYTES = 256
_VERSION = re.compile(r"\d+(?:\.\d+)+")


class _Runtime(NamedTuple):
    program: str
    """What is asked for its version."""
    minimum: tuple[int, ...] = ()
    reason: str = ""


_NODE = _Runtime("node", (18,), "the SDK for TypeScript needs Node.js 18")
_PYTHON = _Runtime("python", (3, 10), "the SDK for Python needs Python 3.10")
_RUNTIMES = {
    "node": _NODE,
    "npx": _NODE,
    "npm": _NODE,
    "uv": _Runtime("uv"),
    "uvx": _Runtime("uvx"),
    "python": _PYTHON,
    "deno": _Runtime("deno"),
    "bun": _Runtime("bun"),
    "bunx": _Runtime("bun"),
    "docker": _Runtime("docker"),
}


def check_program(server: ServerConfig) -> Iterator[Check]:
    """The checks ``command`` and ``versions`` of a server with a command. The configuration is expanded."""
    environment = server_environment(server.env, inherit_all=server.inherit_env)
    cwd = None if server.cwd is None else os.path.abspath(os.path.expanduser(server.cwd))
    try:
        command, *_ = argument_vector(server.command or "", server.args)
        if cwd is not None and not os.path.isdir(cwd):
            yield failed("command", f"the working directory {cwd} does not exist", 'Mend "cwd", or leave it out.')
            return
        executable = find_executable(command, environment, cwd)
    except MCPError as error:
        yield failed("command", error.message, for_missing_program(server.command or ""))
        return
    interpreter = _shebang(executable)
    if interpreter and not os.path.exists(interpreter[0]):
        detail = f"{executable} is a script for {interpreter[0]}, which does not exist"
        yield failed("command", detail, "Install the server again: its virtual environment has gone, or was moved.")
        return
    yield ok("command", executable)
    yield _check_version(executable, interpreter, environment)


def _check_version(executable: str, interpreter: list[str], environment: Mapping[str, str]) -> Check:
    runtime, path = _runtime_of(executable, interpreter)
    if runtime is None:
        return skipped("versions", "the command is no well-known runtime")
    # npx is a script of node, and node is what has the version; the others are asked themselves.
    program = path if _stem(path) in (runtime.program, "python") else runtime.program
    try:
        found = find_executable(program, environment, None)
        shown = _version(found, environment)
    except MCPError as error:
        return failed("versions", error.message, for_missing_program(program))
    except subprocess.TimeoutExpired:
        return warned(
            "versions", f"{program} --version did not end within {_VERSION_SECONDS:g} s", "Is the machine busy?"
        )
    except (OSError, ValueError) as error:
        return failed("versions", f"{program} --version failed: {error}", f"Install {runtime.program} again.")
    match = _VERSION.search(shown)
    if match is None:
        return warned("versions", f"{program} --version says {shown!r}, which is no version", None)
    detail = f"{runtime.program} {match[0]}"
    if tuple(map(int, match[0].split("."))) < runtime.minimum:
        return warned("versions", detail, f"Update it: {runtime.reason} or newer.")
    return Check("versions", Verdict.OK, detail)


def _version(executable: str, environment: Mapping[str, str]) -> str:
    """The first line that ``--version`` prints. Raises OSError and ValueError (a bad exit status)."""
    done = subprocess.run(
        [executable, "--version"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_VERSION_SECONDS,
        check=False,
    )
    # Package managers print the URLs of indexes, with the passwords in them.
    redact = Redactor(url_credentials(environment.values()))
    lines = redact(done.stdout.decode("utf-8", "replace")).splitlines() or [""]
    if done.returncode != 0:
        raise ValueError(f"exit status {done.returncode}: {lines[0][:200]}")
    return lines[0][:200]


def _runtime_of(executable: str, interpreter: list[str]) -> tuple[_Runtime | None, str]:
    """What runs the program, and the path or name by which to ask it."""
    for candidate in (executable, *interpreter):
        runtime = _RUNTIMES.get(_stem(candidate))
        if runtime is not None:
            return runtime, candidate
    return None, executable


def _stem(program: str) -> str:
    """``python`` for ``/usr/bin/python3.11``, ``npx`` for ``npx.cmd``."""
    name = os.path.basename(program).lower()
    name = re.sub(r"\.(exe|cmd|bat)$", "", name)
    return "python" if re.fullmatch(r"python[\d.]*", name) else name


def _shebang(executable: str) -> list[str]:
    """The words of a script's first line; empty for what is no script."""
    try:
        with open(executable, "rb") as stream:
            line = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
