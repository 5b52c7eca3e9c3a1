"""The preferred engine: bubblewrap, which gives a server its own namespaces."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator
from os.path import isdir, islink

from gaia.mcp.transports.sandbox.confinement import Confinement
from gaia.mcp.transports.sandbox.places import entries_without

_PROBE_SECONDS = 10.0
_NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),
)
_SETTINGS = "/proc/sys"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - each sandbox has its own
_SCRATCH_BYTES = 1024**3
"""The size of a server's private directories if its memory is not limited."""


class Unusable(Exception):
    """An engine cannot be used on this machine. The text gives the reason and a remedy."""


@functools.cache
def find_bubblewrap() -> tuple[str, bool]:
    """The path of a bubblewrap that works here, and whether it can forbid user namespaces. Raises Unusable."""
    program = shutil.which("bwrap")
    if program is None:
        raise Unusable("bubblewrap is not installed (Debian, Ubuntu, Fedora and Arch call the package bubblewrap)")
    try:
        disables = b"--disable-userns" in _run([program, "--help"])
        arguments = [*_NAMESPACES, *(["--disable-userns"] if disables else [])]
        _run([program, *arguments, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"])
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip()[-300:]
        raise Unusable(
            f"bubblewrap does not work here ({said}); permit unprivileged user namespaces: on Ubuntu by an AppArmor "
            "profile for bwrap or kernel.apparmor_restrict_unprivileged_userns=0, on other systems by "
            "user.max_user_namespaces, in a container by its seccomp profile"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"bubblewrap does not work here: {error}") from error
    return program, disables


def _run(argv: list[str]) -> bytes:
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=True
    ).stdout


def wrapped(confinement: Confinement, program: str, disables_namespaces: bool) -> list[str]:
    """The arguments before the command. They end with ``--``.

    There is no `--new-session`: the transport has made the session, and finds the sandbox's processes by their group.
    There is no `--die-with-parent`: it would react to the end of the thread that started the server. The guard does it
    for the process.
    """
    scratch = str(confinement.memory or _SCRATCH_BYTES)
    arguments = [program, *_NAMESPACES]
    if disables_namespaces:
        arguments.append("--disable-userns")
    if confinement.network:
        arguments.remove("--unshare-net")
    partly = sorted({place for file in confinement.left_out if isdir(place := os.path.dirname(file))})
    arguments += ["--ro-bind", "/", "/"] if "/" not in partly else []
    steps = [*_partly_shown(confinement, partly), *_hidden(confinement, scratch), *_shown(confinement, partly)]
    steps.sort(key=lambda step: (step[0].count("/") - (step[0] == "/"), step[0]))
    for place, step in steps:
        arguments += [*step, place]
    # In any namespace root may change /proc/sys, such as the program that the kernel runs after a crash.
    arguments += ["--proc", "/proc", "--ro-bind", _SETTINGS, _SETTINGS, "--dev", "/dev"]
    arguments += ["--perms", "1777", "--size", scratch, "--tmpfs", _SHARED_MEMORY, "--remount-ro", "/dev"]
    # Last, because mount points in these directories had to be made first.
    for place in (*confinement.hidden, *confinement.masked, *partly):
        if place not in confinement.private and isdir(place):
            arguments += ["--remount-ro", place]
    return [*arguments, "--chdir", confinement.cwd, "--"]


def _partly_shown(confinement: Confinement, directories: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The mounts of directories with left-out files, entry by entry; an outer directory first."""
    for directory in directories:
        if directory != "/":
            yield directory, ["--tmpfs"]
        for path in entries_without(directory, [*confinement.left_out, "/proc", "/dev"]):
            # `--ro-bind-try` skips an entry that is gone by now.
            yield path, ["--symlink", os.readlink(path)] if islink(path) else ["--ro-bind-try", path]


def _hidden(confinement: Confinement, scratch: str) -> Iterator[tuple[str, list[str]]]:
    for place in confinement.hidden:
        size = ["--perms", "1777", "--size", scratch] if place in confinement.private else []
        yield place, [*size, "--tmpfs"]
    for place in confinement.masked:
        yield place, ["--tmpfs"] if isdir(place) else ["--ro-bind", "/dev/null"]


def _shown(confinement: Confinement, partly: Container[str]) -> Iterator[tuple[str, list[str]]]:
    for place in confinement.read:
        if place not in partly:
            yield place, ["--ro-bind", place]
    for place in confinement.write:
        yield place, ["--bind", place]
    for link, target in confinement.links:
        yield link, ["--symlink", target]
