"""`cage` makes a server's command run in its sandbox, with the first engine that can enforce everything here.

Control groups limit memory, processes and processor time if possible; otherwise limits of each process do.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.command import is_install_setting
from gaia.mcp.transports.fork_server import can_start_helpers
from gaia.mcp.transports.process import ending_of
from gaia.mcp.transports.sandbox import Sandbox
from gaia.mcp.transports.sandbox.bubblewrap import Unusable, find_bubblewrap, wrapped
from gaia.mcp.transports.sandbox.confinement import Confinement, confinement_of
from gaia.mcp.transports.sandbox.kernel import (
    INTERNET,
    LOCAL,
    filter_program,
    landlock_version,
    require_landlock,
    rules_of,
)
from gaia.runtime.redaction import url_credentials

Engine = Literal["bubblewrap", "landlock"]

_LAUNCHER = Path(__file__).with_name("launcher.py")
_SHELL = "/bin/sh"
_SIGNALLED = 128
_SCOPED = 6


_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_PREFIX = "gaia-mcp-"
_MEMBERS = "cgroup.procs"
_EMPTY_SECONDS = 2.0
_BUBBLEWRAP_PROCESSES = 2

_POLL_SECONDS = 0.01

# The files that set a controller's limit. The last ones exist in some kernels only.
_VERSION_1 = {"pids": ["pids.max"], "memory": ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]}
_VERSION_2 = {"pids": ["pids.max"], "memory": ["memory.max", "memory.swap.max"]}

# By the key of the limit: files in which the kernel counts its refusals (version 1 and 2), and the field.
_REFUSALS = {"memory": (("memory.oom_control", "memory.events"), "oom_kill"), "processes": (("pids.events",), "max")}


class ControlGroups:
    """The control groups of one server, one for each hierarchy. Made before its start, removed after its end."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        """`limits` by controller: ``pids`` and ``memory``. Raises OSError if this process may not make such groups."""
        self._folders: list[Path] = []
        try:
            for controller, value in limits.items():
                self._limit(value, *_hierarchy(controller))
        except BaseException:
            self.remove()
            raise

    @property
    def members(self) -> list[str]:
        """Files: a process that writes ``0`` to each becomes a member, and so do its descendants."""
        return [str(folder / _MEMBERS) for folder in self._folders]

    def _limit(self, value: int, parent: Path, files: list[str]) -> None:
        folder = next((made for made in self._folders if made.parent == parent), None)
        if folder is None:
            _sweep(parent)
            folder = parent / f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:12]}"
            folder.mkdir()
            self._folders.append(folder)
        (folder / files[0]).write_text(str(value))
        for file in files[1:]:
            if (folder / file).exists():
                # Version 1 counts memory and swap together here; version 2 counts only the swapped part.
                (folder / file).write_text("0" if file == "memory.swap.max" else str(value))

    def used_up(self) -> tuple[str, ...]:
        """The keys of the limits for which the kernel has killed a member, or refused it a process."""
        return tuple(key for key, (files, name) in _REFUSALS.items() if self._count(files, name))

    def _count(self, files: tuple[str, ...], name: str) -> int:
        for path in (folder / file for folder in self._folders for file in files):
            with contextlib.suppress(OSError, ValueError):
                if counted := dict(line.split() for line in path.read_text().splitlines()).get(name):
                    return int(counted)
        return 0

    def remove(self) -> None:
        """Remove the groups. Waits a moment until the kernel has forgotten the last process."""
        deadline = time.monotonic() + _EMPTY_SECONDS
        while self._folders:
            try:
                self._folders[-1].rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
                    continue
            self._folders.pop()


def _hierarchy(controller: str) -> tuple[Path, list[str]]:
    """The parent group for a new group with this controller, and the names of its limit files. Raises OSError."""
    unified = None
    for line in _MEMBERSHIP.read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            parent = _ROOT / controller / path.lstrip("/")
            # In a container the path is the host's, but the container's own group is mounted.
            return (parent if parent.is_dir() else _ROOT / controller), _VERSION_1[controller]
        if number == "0":
            unified = path
    if unified is None:
        raise FileNotFoundError(f"no control group has the controller {controller}")
    # A group with processes passes on no controllers, so the new group is a sibling of this process's group.
    parent = (_ROOT / unified.lstrip("/")).parent if unified != "/" else _ROOT
    if controller not in (parent / "cgroup.subtree_control").read_text().split():
        raise PermissionError(f"{parent} passes the controller {controller} on to no group")
    if not os.access(parent / _MEMBERS, os.W_OK):
        raise PermissionError(f"{parent} belongs to another user")
    return parent, _VERSION_2[controller]


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        host = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not os.path.exists(f"/proc/{host}"):
            with contextlib.suppress(OSError):
                folder.rmdir()


@dataclass
class Limits:
    groups: ControlGroups | None = None
    of_process: dict[str, int] = field(default_factory=dict)


def limits_of(confinement: Confinement, *, in_namespaces: bool) -> Limits:
    """Raises Unusable for a limit that cannot be enforced. A user namespace counts processes separately."""
    limits = Limits()
    if confinement.cpu_seconds is not None:
        limits.of_process["RLIMIT_CPU"] = confinement.cpu_seconds
    wanted = {}
    if confinement.processes is not None:
        wanted["pids"] = confinement.processes + (_BUBBLEWRAP_PROCESSES if in_namespaces else 0)
    if confinement.memory is not None:
        wanted["memory"] = confinement.memory
    if not wanted:
        return limits
    try:
        limits.groups = ControlGroups(wanted)
    except OSError as error:
        if confinement.memory is not None:
            limits.of_process["RLIMIT_DATA"] = confinement.memory
        if confinement.processes is not None:
            if not in_namespaces:
                raise Unusable(f'"processes" needs a control group ({error}) or bubblewrap') from error
            if os.getuid() == 0:
                raise Unusable(f'"processes" needs a control group ({error}), or a user other than root') from error
            # One of bubblewrap's processes is in the namespace.
            limits.of_process["RLIMIT_NPROC"] = confinement.processes + 1
    return limits


@dataclass
class Cage:
    """The command that starts a server in its sandbox, and the work after its end. For one thread at a time."""

    argv: list[str]
    environment: dict[str, str]
    engine: Engine
    confinement: Confinement
    limits: Limits
    scratch: str | None = None
    """The server's private directory, if it is a directory of this machine."""

    def ending_of_server(self, ending: Ending) -> Ending:
        """Convert the ending of the started process into the ending of the server.

        Bubblewrap waits for the server and reports a signal like a shell: as exit status 128 plus the signal. Call this
        before `remove`, because the control group knows which limits were reached.
        """
        number = (ending.exit_code or 0) - _SIGNALLED
        if self.engine == "bubblewrap" and 0 < number < signal.NSIG:
            ending = ending_of(-number)
        used_up = () if ending.clean or self.limits.groups is None else self.limits.groups.used_up()
        if ending.signal == "SIGXCPU":
            used_up = (*used_up, "cpuSeconds")
        return msgspec.structs.replace(ending, used_up=used_up) if used_up else ending

    def remove(self) -> None:
        """Call this when all processes have ended, or none was started. May be called again."""
        if self.limits.groups is not None:
            self.limits.groups.remove()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def cage(
    sandbox: Sandbox,
    argv: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | None,
    configured: Mapping[str, str] | None = None,
) -> Cage:
    """Make the sandbox for one start of a server. The caller must call `Cage.remove` in the end.

    `argv` begins with an absolute path. `configured` is the part of the environment that the configuration sets; it is
    not changed. Raises StartFailed if a path cannot be used, or no engine of this machine enforces everything.
    """
    if not can_start_helpers():
        raise StartFailed('a sandbox needs a Python interpreter, and this application has none; remove "sandbox"')
    python = os.path.realpath(sys.executable)
    search_path = environment.get("PATH", os.defpath)
    reasons = []
    try:
        confinement = confinement_of(sandbox, argv, search_path, cwd, own=(python, str(_LAUNCHER)))
        server = _Server(confinement, [python, "-I", "-S", str(_LAUNCHER)], argv, environment, configured or {})
        for make in (_in_bubblewrap, _in_landlock):
            try:
                return make(server)
            except Unusable as error:
                reasons.append(str(error))
    except OSError as error:
        raise StartFailed(f"the sandbox cannot be made: {error}") from error
    raise StartFailed(
        f"no sandbox can be made on this machine: {'; '.join(reasons)}. "
        'Mend that, or leave out of "sandbox" what cannot be enforced here'
    )


class _Server(NamedTuple):
    confinement: Confinement
    launcher: list[str]
    argv: Sequence[str]
    environment: Mapping[str, str]
    configured: Mapping[str, str]

    def command(
        self, limits: Limits, domain: dict[str, Any] | None, allowed: bytes, prefix: Sequence[str]
    ) -> list[str]:
        plan = {
            "limits": limits.of_process,
            "landlock": domain,
            "filter": allowed.hex(),
            # The interpreter sets this variable for itself.
            "unset": [] if "LC_CTYPE" in self.environment else ["LC_CTYPE"],
        }
        files = [] if limits.groups is None else limits.groups.members
        # SIGTERM is for the server: bubblewrap would end at once, without leaving the server time. The launcher stops
        # ignoring the signal.
        commands = ["trap '' TERM"] if prefix else []
        commands += [f'echo 0 > "${number}"' for number, _ in enumerate(files, 1)]
        script = " && ".join([*commands, f"shift {len(files)}", 'exec "$@"'])
        shell = [_SHELL, "-c", script, "sandbox", *files] if commands else []
        return [*shell, *prefix, *self.launcher, marshal.dumps(plan).hex(), *self.argv]

    def environment_with(self, scratch: str) -> dict[str, str]:
        places = {
            "TMPDIR": scratch,
            "XDG_CACHE_HOME": os.path.join(scratch, "cache"),
            "npm_config_cache": os.path.join(scratch, "npm"),
            "PIP_CACHE_DIR": os.path.join(scratch, "pip"),
            "UV_CACHE_DIR": os.path.join(scratch, "uv", "cache"),
            "UV_TOOL_DIR": os.path.join(scratch, "uv", "tools"),
            "UV_PYTHON_INSTALL_DIR": os.path.join(scratch, "uv", "python"),
        }
        # npm reads its variables in capitals too.
        named, chosen = ({name.upper() for name in names} for names in (places, self.configured))
        kept = {
            name: value
            for name, value in self.environment.items()
            if name in self.configured or not (name.upper() in named or self._is_useless(name, value))
        }
        return kept | {name: place for name, place in places.items() if name.upper() not in chosen}

    def _is_useless(self, name: str, value: str) -> bool:
        """Whether a setting has a path that is not shown or, without a network, a proxy or an index with a password."""
        return is_install_setting(name) and (
            (os.path.isabs(value) and os.path.exists(value) and not self.confinement.shows(value))
            or (not self.confinement.network and bool(url_credentials([value])))
        )


def _in_bubblewrap(server: _Server) -> Cage:
    confinement = server.confinement
    program, disables_namespaces = find_bubblewrap()
    if not confinement.private:
        raise Unusable("bubblewrap needs a directory /tmp, in whose place it puts a private one")
    # A network namespace has its own abstract sockets; with the host's network, Landlock separates them.
    scoped = confinement.network and landlock_version() >= _SCOPED
    families = INTERNET if confinement.network and not scoped else (*LOCAL, *INTERNET)
    allowed = filter_program(platform.machine(), families, alone=False)
    domain = {"files": None, "tcp": True, "signals": False} if scoped else None
    prefix = wrapped(confinement, program, disables_namespaces)
    limits = limits_of(confinement, in_namespaces=True)
    # Inherited variables may name directories that the sandbox does not have.
    private = server.environment_with(confinement.private[0])
    return Cage(server.command(limits, domain, allowed, prefix), private, "bubblewrap", confinement, limits)


def _in_landlock(server: _Server) -> Cage:
    confinement = server.confinement
    require_landlock(confinement)
    allowed = filter_program(platform.machine(), INTERNET if confinement.network else (), alone=True)
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="gaia-sandbox-"))
    try:
        files = [[path, right] for path, right in rules_of(confinement, scratch)]
        limits = limits_of(confinement, in_namespaces=False)
    except BaseException:
        os.rmdir(scratch)
        raise
    domain = {"files": files, "tcp": confinement.network, "signals": True}
    # Programs treat an unreadable home as an error, but accept an empty one.
    private = server.environment_with(scratch) | {"HOME": scratch}
    return Cage(server.command(limits, domain, allowed, ()), private, "landlock", confinement, limits, scratch)
