"""Checks the program that starts a server, and its sandbox.

The program must exist, run and be new enough. The sandbox must be possible here. If strace is installed, the server is
started once more under it, and failed system calls are compared with the files outside the sandbox. So the check shows
which accesses the sandbox denied during the start, independently of the server's own messages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor.diagnosis import Check, failed, for_missing_program, ok, skipped, warned
from gaia.mcp.errors import MCPError
from gaia.mcp.transports.command import argument_vector, find_executable, server_environment
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.redaction import Redactor, url_credentials

if TYPE_CHECKING:
    from gaia.mcp.transports.sandbox.confinement import Confinement

_VERSION_SECONDS = 10.0
_SHEBANG_BYTES = 256
_VERSION = re.compile(r"\d+(?:\.\d+)+")


class _Runtime(NamedTuple):
    program: str
    minimum: tuple[int, ...] = ()
    reason: str = ""


_RUNTIMES = {
    **dict.fromkeys(("node", "npx", "npm"), _Runtime("node", (18,), "the SDK for TypeScript needs Node.js 18")),
    "python": _Runtime("python", (3, 10), "the SDK for Python needs Python 3.10"),
    "bunx": _Runtime("bun"),
    **{name: _Runtime(name) for name in ("uv", "uvx", "deno", "bun", "docker")},
}


def check_program(server: ServerConfig) -> Iterator[Check]:
    """The checks ``command`` and ``versions`` of a server with a command. `server` is expanded."""
    cwd = _folder_of(server)
    if cwd is not None and not os.path.isdir(cwd):
        yield failed("command", f"the working directory {cwd} does not exist", 'Mend "cwd", or leave it out.')
        return
    try:
        (executable, *_), environment = _start_of(server)
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


def _folder_of(server: ServerConfig) -> str | None:
    return None if server.cwd is None else os.path.abspath(os.path.expanduser(server.cwd))


def _start_of(server: ServerConfig) -> tuple[list[str], dict[str, str]]:
    environment = server_environment(server.env, inherit_all=server.inherit_env)
    command, *arguments = argument_vector(server.command or "", server.args)
    return [find_executable(command, environment, _folder_of(server)), *arguments], environment


def _check_version(executable: str, interpreter: list[str], environment: Mapping[str, str]) -> Check:
    path = next((each for each in (executable, *interpreter) if _stem(each) in _RUNTIMES), None)
    if path is None:
        return skipped("versions", "the command is no well-known runtime")
    runtime = _RUNTIMES[_stem(path)]
    # npx is a script of node, whose version counts. The other programs report their own version.
    program = path if _stem(path) in (runtime.program, "python") else runtime.program
    try:
        found = find_executable(program, environment, None)
        shown = _version(found, environment)
    except MCPError as error:
        return failed("versions", error.message, for_missing_program(program))
    except subprocess.TimeoutExpired:
        detail = f"{program} --version did not end within {_VERSION_SECONDS:g} s"
        return warned("versions", detail, "Is the machine busy?")
    except (OSError, ValueError) as error:
        return failed("versions", f"{program} --version failed: {error}", f"Install {runtime.program} again.")
    match = _VERSION.search(shown)
    if match is None:
        return warned("versions", f"{program} --version says {shown!r}, which is no version", None)
    detail = f"{runtime.program} {match[0]}"
    if tuple(map(int, match[0].split("."))) < runtime.minimum:
        return warned("versions", detail, f"Update it: {runtime.reason} or newer.")
    return ok("versions", detail)


def _version(executable: str, environment: Mapping[str, str]) -> str:
    """The first line of the output of ``--version``. Raises OSError, and ValueError for a bad exit status."""
    done = subprocess.run(
        [executable, "--version"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_VERSION_SECONDS,
        check=False,
    )
    # Package managers print URLs of indexes, which may contain passwords.
    redact = Redactor(url_credentials(environment.values()))
    lines = redact(done.stdout.decode("utf-8", "replace")).splitlines() or [""]
    if done.returncode != 0:
        raise ValueError(f"exit status {done.returncode}: {lines[0][:200]}")
    return lines[0][:200]


def _stem(program: str) -> str:
    """The plain name: ``python`` for ``/usr/bin/python3.11``, ``npx`` for ``npx.cmd``."""
    name = re.sub(r"\.(exe|cmd|bat)$", "", os.path.basename(program).lower())
    return "python" if re.fullmatch(r"python[\d.]*", name) else name


def _shebang(executable: str) -> list[str]:
    """The words after ``#!`` in a script's first line; empty if the file is not a script."""
    try:
        with open(executable, "rb") as stream:
            line = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []


_NAME = "sandbox"
_MAX_DENIALS = 10
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<value>-?\d+)\S*(?: (?P<error>E[A-Z0-9]+))?")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<directory>[^>]*)>, )?"(?P<path>(?:[^"\\]|\\.)*)"')
_ADDRESS = re.compile(r'(?:inet_addr\("|inet_pton\(AF_INET6, ")(?P<address>[^"]+)"')
_SOCKET = re.compile(r'sun_path="(?P<path>[^"]+)"')
_LAUNCHER = re.compile(r'"[^"]*", \["[^"]*", "-I", "-S", "[^"]*sandbox/launcher\.py"')
_CHANGES = re.compile(
    r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|^(mkdir|unlink|rename|link|symlink|rmdir|chmod|chown|fchmod|utime|trunc|mknod)"
)
_NETWORK = ("connect", "sendto", "sendmsg", "socket")
_KERNEL = ("/proc", "/dev", "/sys")


class Denial(NamedTuple):
    key: str
    """The key that would permit the access: ``read``, ``write`` or ``network``."""
    what: str


def check_sandbox(name: str, config: Mapping[str, Any], server: ServerConfig) -> Check:
    """The check ``sandbox``. The server is started and stopped. `server` is expanded."""
    from gaia.mcp.transports.sandbox.cage import cage

    settings = server.sandbox_settings
    assert settings is not None, "only servers in sandboxes are checked"
    try:
        argv, environment = _start_of(server)
        caged = cage(settings, argv, environment, _folder_of(server), server.env)
    except MCPError as error:
        return failed(_NAME, error.message, None)
    caged.remove()
    limits = [] if caged.limits.groups is None else ["a control group"]
    limits += [f"{name} of each process" for name in caged.limits.of_process]
    kept = {name.upper() for name in caged.environment}
    useless = sorted(name for name in environment if name.upper() not in kept)
    made = caged.engine + (f", limits by {' and '.join(limits)}" if limits else "")
    made += f", without the variables {', '.join(useless)}, of no use in it" if useless else ""
    tracer = shutil.which("strace")
    if tracer is None:
        return ok(_NAME, f"{made}; what the server is denied can be seen if strace is installed")
    try:
        denials = _observed(name, config, tracer, caged.confinement)
    except OSError as error:
        return warned(_NAME, f"{made}; what the server is denied could not be observed: {error}", None)
    if not denials:
        return ok(_NAME, f"{made}; nothing was denied while it started")
    shown = [f"{key} {what}" for key, what in denials[:_MAX_DENIALS]]
    more = f" and {len(denials) - _MAX_DENIALS} more" if len(denials) > _MAX_DENIALS else ""
    return warned(_NAME, f"{made}; denied while it started: {', '.join(shown)}{more}", _remedy(denials))


def _remedy(denials: Iterable[Denial]) -> str:
    import json

    from gaia.mcp.transports.sandbox.places import homes, is_below, secret_places

    secrets = secret_places()
    whole = homes()
    wanted: dict[str, Any] = {}
    for key, what in denials:
        if key == "network":
            wanted["network"] = True
        elif what not in whole and not any(is_below(what, secret) for secret in secrets):
            wanted.setdefault(key, []).append(what)
    if not wanted:
        return "It tried to read secrets, or to write to the home: name what it needs there if you trust it so far."
    keys = json.dumps(wanted, ensure_ascii=False)
    return f"If the server needs it, and you trust it so far, add to its sandbox: {keys}"


def _observed(name: str, config: Mapping[str, Any], tracer: str, confinement: Confinement) -> list[Denial]:
    """The denials while the server starts and lists its tools. Raises OSError if strace's output cannot be read."""
    with tempfile.TemporaryDirectory(prefix="gaia-doctor-") as folder:
        output = os.path.join(folder, "calls")
        client = MCPClient.from_config(name, {**config, "pinTools": "off", "restart": {"restart": "never"}})
        assert isinstance(client.transport, StdioTransport), "only servers with a command have sandboxes"
        calls = "trace=%file,%network"
        client.transport.tracer = (tracer, "-f", "-qqq", "-y", "-s", "256", "-e", calls, "-o", output, "--")
        try:
            client.connect()
        finally:
            client.disconnect()
        with open(output, encoding="utf-8", errors="surrogateescape") as lines:
            return denials_in(lines, confinement)


def denials_in(lines: Iterable[str], confinement: Confinement) -> list[Denial]:
    found: dict[Denial, None] = {}
    for match in _calls_of_server(lines):
        if match["error"] is not None:
            for denial in _denials(match["name"], match["arguments"], match["error"], confinement):
                found.setdefault(denial)
    return list(found)


def _calls_of_server(lines: Iterable[str]) -> Iterator[re.Match[str]]:
    """The server's own calls, without those of its launcher. The parts of interrupted calls are joined."""
    begun: dict[str, str] = {}
    launcher: str | None = None
    serving = False
    for line in lines:
        process, _, text = line.rstrip("\n").partition(" ")
        text = text.strip()
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<..."):
            text = begun.pop(process, "") + text.partition("resumed>")[2]
        match = _CALL.match(text)
        if match is None:
            continue
        if serving:
            yield match
        elif match["name"] == "execve" and match["error"] is None:
            serving = process == launcher
            launcher = process if _LAUNCHER.match(match["arguments"]) else launcher


def _denials(call: str, arguments: str, error: str, confinement: Confinement) -> Iterator[Denial]:
    if call in _NETWORK:
        yield from _network_denials(call, arguments, error, confinement)
        return
    changes = error == "EROFS" or _CHANGES.search(f"{call} ") is not None or _CHANGES.search(arguments) is not None
    for match in _PATH.finditer(arguments if not call.startswith("exec") else arguments.partition(", [")[0]):
        path = os.path.normpath(os.path.join(match["directory"] or confinement.cwd, _unescaped(match["path"])))
        if path.startswith(_KERNEL):
            continue
        if changes and error in ("EROFS", "EACCES", "EPERM", "ENOENT"):
            # A sandbox can permit only existing paths, so for a new file the directory counts.
            place = path if os.path.exists(path) else os.path.dirname(path)
            if os.access(place, os.W_OK) and place not in confinement.private and not confinement.writes(place):
                yield Denial("write", place)
        elif error in ("ENOENT", "EACCES", "EPERM") and not confinement.shows(path) and os.access(path, os.R_OK):
            yield Denial("read", path)


def _network_denials(call: str, arguments: str, error: str, confinement: Confinement) -> Iterator[Denial]:
    if (local := _SOCKET.search(arguments)) is not None:
        path = _unescaped(local["path"])
        if error in ("ENOENT", "EACCES", "EPERM") and os.path.exists(path) and not confinement.shows(path):
            yield Denial("write", path)
    elif not confinement.network and (address := _ADDRESS.search(arguments)) is not None:
        if error in ("ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EACCES", "EPERM", "EADDRNOTAVAIL"):
            yield Denial("network", address["address"])
    elif not confinement.network and call == "socket" and error == "EACCES" and "AF_INET" in arguments:
        yield Denial("network", arguments.partition(",")[0])


def _unescaped(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return (
        raw.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
    )
