"""The parts of a sandbox that the kernel enforces: Landlock rules for files, and a system call filter (seccomp-BPF).

Landlock is the engine if bubblewrap cannot be used. The filter covers gaps of namespaces and Landlock: keys of the
user's session, sockets of virtual machines, characters typed into a terminal; and, for Landlock alone, sockets of any
kind and the metadata of files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.confinement import Confinement
from gaia.mcp.transports.sandbox.places import is_below, is_in

INTERNET = (2, 10, 16)
"""AF_INET, AF_INET6, and AF_NETLINK, which programs use to find their own addresses."""

LOCAL = (1,)

# By machine: x86_64, aarch64. None: the machine does not have the call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29), "io_uring_setup": (425, 425),
    "prlimit64": (302, 261),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setaffinity": (203, 122),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""For each machine: the column of `_CALLS`, and the machine's number in the kernel's audit."""

_ALWAYS = ("add_key", "request_key", "keyctl")
_UNCOVERED_BY_LANDLOCK = (
    *("shmget", "shmat", "semget", "msgget", "mq_open", "setpriority", "ioprio_set"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    *("removexattrat", "file_setattr"),
)
"""Access to other processes' memory and priority, and to modes, owners, times and attributes of read-only files."""

_OF_ANOTHER_PROCESS = ("prlimit64", "sched_setscheduler", "sched_setattr", "sched_setparam", "sched_setaffinity")
"""The first argument of these is a process, or 0 for the caller itself."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ON_FILES = (
    *(0x40086602, 0x40046602, 0x401C5820),  # FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR
    *(0x40087602, 0x40047602, 0x40806685),  # FS_IOC_SETVERSION, FS_IOC32_SETVERSION, FS_IOC_ENABLE_VERITY
)
"""Requests that change the attributes of a file that is open for reading only."""

_STREAM, _SEQPACKET = 1, 5
_CONNECTED = tuple(kind | flags for kind in (_STREAM, _SEQPACKET) for flags in (0, 0x800, 0x80000, 0x80800))
"""Socket pairs that cannot send to any other address, with and without SOCK_NONBLOCK and SOCK_CLOEXEC."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000

_Instruction = tuple[int, int, int, int]


def filter_program(machine: str, families: Iterable[int], *, alone: bool) -> bytes:
    """The filter for a machine, as a sequence of ``struct sock_filter``.

    `families` are the socket families that may be used. `alone` is for Landlock without namespaces. Raises Unusable for
    a machine whose system calls are unknown here.
    """
    if machine not in _MACHINES:
        raise Unusable(f"a sandbox is known for {' and '.join(_MACHINES)}, and this machine is {machine}")
    column, architecture = _MACHINES[machine]
    numbers = {name: row[column] for name, row in _CALLS.items()}
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    for name in (*_ALWAYS, *(_UNCOVERED_BY_LANDLOCK if alone else ())):
        program += _rule(numbers, name, [_refuse(errno.EPERM)])
    # Requests in its rings pass no filter. Programs that use it can do without it.
    program += _rule(numbers, "io_uring_setup", [_refuse(errno.ENOSYS)])
    program += _rule(numbers, "socket", _only(0, families, errno.EACCES))
    if alone:
        program += _rule(numbers, "socketpair", _only(1, _CONNECTED, errno.EACCES))
    typing = (_TIOCSTI, _TIOCLINUX)
    program += _rule(numbers, "ioctl", _none_of(1, (*typing, *_ON_FILES) if alone else typing, errno.EPERM))
    for name in _OF_ANOTHER_PROCESS if alone else ():
        program += _rule(numbers, name, _only(0, (0,), errno.EPERM))
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refuse(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _rule(numbers: Mapping[str, int | None], name: str, body: list[_Instruction]) -> list[_Instruction]:
    number = numbers[name]
    return [] if number is None else [(_EQUAL, 0, len(body), number), *body]


def _only(argument: int, values: Iterable[int], error: int) -> list[_Instruction]:
    """Refuse all other values of an argument. Only its lower half counts: the kernel takes these arguments as int."""
    return [*_when(argument, values, (_RETURN, 0, 0, _ALLOW)), _refuse(error)]


def _none_of(argument: int, values: Iterable[int], error: int) -> list[_Instruction]:
    return [*_when(argument, values, _refuse(error)), (_RETURN, 0, 0, _ALLOW)]


def _when(argument: int, values: Iterable[int], then: _Instruction) -> list[_Instruction]:
    instructions: list[_Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for value in values:
        instructions += [(_EQUAL, 0, 1, value), then]
    return instructions


READ, WRITE, USE, LIST = "read", "write", "use", "list"
"""The rights of a rule: read and run; also change; read from and write to a device; list names."""

_CREATE_RULESET = 444
_VERSION_FLAG = 1
_NEEDED = 6
"""The first version that keeps signals and abstract sockets within the sandbox (Linux 6.12)."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_FACTS = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"),
    *("self", "sys/kernel", "sys/vm", "sys/fs", "sys/net"),
)
"""Files that programs read in ``/proc``. Other processes' directories stay closed."""


def landlock_version() -> int:
    """The version of this kernel's Landlock interface; 0 if there is none, or it is turned off."""
    library = ctypes.CDLL(None, use_errno=True)
    return max(0, int(library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def require_landlock(confinement: Confinement) -> None:
    """Raises Unusable if this kernel's Landlock cannot enforce the confinement."""
    version = landlock_version()
    if version < _NEEDED:
        state = f"version {version}" if version else "none"
        raise Unusable(f"Landlock of version {_NEEDED} is needed (Linux 6.12 or newer), and this kernel has {state}")
    torn = [secret for secret in confinement.masked if is_in(secret, confinement.write)]
    if torn:
        raise Unusable(f'Landlock cannot keep {torn[0]} from a server that may write around it; name less in "write"')


def rules_of(confinement: Confinement, scratch: str) -> Iterator[tuple[str, str]]:
    """The rules, as pairs of a path and READ, WRITE, USE or LIST. `scratch` is the server's private directory.

    Landlock can only permit, and a rule for a directory covers everything in it. So a directory with hidden places has
    a rule for each other entry.
    """
    closed = [*confinement.hidden, *confinement.masked, *confinement.left_out, "/proc", "/dev"]
    for path in _without("/", closed):
        yield path, READ
    for place in confinement.read:
        for path in _without(
            place, [one for one in (*confinement.masked, *confinement.left_out) if is_below(one, place)]
        ):
            yield path, READ
    for place in (*confinement.write, scratch):
        yield place, WRITE
    for directory in {os.path.dirname(file) for file in confinement.left_out}:
        # Only the entries of this directory were permitted. The right to list covers everything below it.
        if not any(is_below(place, directory) for place in (*confinement.hidden, *confinement.masked)):
            yield directory, LIST
    for name in _DEVICES:
        yield f"/dev/{name}", USE
    for name in _FACTS:
        yield f"/proc/{name}", READ


def _without(place: str, closed: Sequence[str]) -> Iterator[str]:
    if is_in(place, closed):
        return
    inner = [path for path in closed if is_below(path, place)]
    if not inner:
        yield place
        return
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.path for entry in entries if not entry.is_symlink())
    except OSError:
        return
    for path in names:
        yield from _without(path, inner)
