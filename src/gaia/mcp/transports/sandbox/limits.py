"""Limits of a server's memory, processes and processor time: control groups if possible, else limits per process."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.confinement import Confinement

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
                # Here version 1 counts both together; version 2 counts only the swapped part.
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
            # In a container the path is that of the host, but the container's own group is mounted.
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
    """The limits of one start."""

    groups: ControlGroups | None = None
    of_process: dict[str, int] = field(default_factory=dict)
    """Values by the names of the module `resource`."""


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
