"""Runs in the server's process before the server: gives up rights and sets limits, then becomes the server.

An isolated interpreter runs it by path, so it imports the standard library only. The host cannot do this between fork
and exec, because it has threads. The arguments are a marshalled plan and the server's argument vector. If a part of the
plan cannot be enforced, the launcher ends with an error, and the server is not started.
"""

from __future__ import annotations

# Few and small imports, because this runs at each start of a server: json, signal and typing would double its time.
import ctypes
import marshal
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EXIT = 126
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 24, 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _PATH_BENEATH = 444, 445, 446, 1
_ABSTRACT, _SIGNALS = 1, 2
_TCP = 0b11
_ALL = 0xFFFF
"""All rights to files in version 5 and newer."""
_DEVICES_MADE = 1 << 6 | 1 << 11
_RIGHTS = {
    "read": 1 << 0 | 1 << 2 | 1 << 3,
    "write": _ALL & ~_DEVICES_MADE,
    "use": 1 << 1 | 1 << 2 | 1 << 14,
    "list": 1 << 3,
}
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""Rights that apply to files; for a file the kernel refuses the others, which apply to directories."""
_CAPABILITIES = 64
_KEPT = 3
_IGNORED = (13, 15, 25)
"""SIGPIPE, SIGTERM and SIGXFSZ, on all machines that have a filter."""


def main(plan: dict[str, Any], argv: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    limit(plan["limits"])
    drop_capabilities(libc)
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if plan["landlock"] is not None:
        restrict(libc, **plan["landlock"])
    os.closerange(_KEPT, os.sysconf("SC_OPEN_MAX"))
    # The server would inherit ignored signals: the interpreter ignores two of these, the process that waits for the
    # server ignores the third. The interpreter may also have set the variable.
    for number in _IGNORED:
        libc.signal(number, None)
    environment = {name: value for name, value in os.environb.items() if name.decode() not in plan["unset"]}
    install_filter(libc, bytes.fromhex(plan["filter"]))
    os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is wanted


def limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)  # noqa: PLW2901 - a tighter limit of the host stays
        # One more for processor time: at the soft limit the kernel warns the server, at the hard one it kills it.
        one_more = number == resource.RLIMIT_CPU and (hard == resource.RLIM_INFINITY or value < hard)
        resource.setrlimit(number, (value, value + one_more))


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up all rights of root except owning files; the process of an ordinary user has none."""
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)
    check(libc.capset(header, bytes(24)), "capabilities")


def restrict(libc: ctypes.CDLL, files: list[list[str]] | None, tcp: bool, signals: bool) -> None:
    """Enter a Landlock domain. `files` are pairs of path and right; None does not restrict files."""
    scoped = _ABSTRACT | (_SIGNALS if signals else 0)
    attributes = struct.pack("=QQQ", 0 if files is None else _ALL, 0 if tcp else _TCP, scoped)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    check(ruleset, "landlock_create_ruleset")
    for path, right in files or ():
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # It has gone, or cannot be reached: then there is nothing to permit.
        rights = _RIGHTS[right] if os.path.isdir(path) else _RIGHTS[right] & _OF_FILES
        rule = struct.pack("=Qi", rights, target)
        added = libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(target)
        check(added, f"landlock_add_rule for {path}")
    check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")


def install_filter(libc: ctypes.CDLL, program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, header, 0, 0), "seccomp")


def check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        # The host uses the same interpreter, so the format is the same.
        main(marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:])  # noqa: S302 - it comes from the host
    except (OSError, ValueError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        sys.exit(_EXIT)
