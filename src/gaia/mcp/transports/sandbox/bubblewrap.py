"""The engine of choice: bubblewrap, which gives a server namespaces of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator
from os.path import isdir, islink

from gaia.mcp.transports.sandbox.places import entries_without
from gaia.mcp.transports.sandbox.profile import Profile

_PROBE_SECONDS = 10.0
_NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),
)
_SETTINGS = "/proc/sys"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is made anew for each sandbox
_SCRATCH_BYTES = 1024**3
"""What a server may keep in its private directories if its memory is not limited."""


class Unusable(Exception):
    """An engine cannot be used on this machine; the text says why, and what to do about it."""


@functools.cache
def find_bubblewrap() -> tuple[str, bool]:
    """The path of a bubblewrap that works here, and whether it can forbid further user namespaces (0.8 or newer).

    It is tried with all the namespaces that a sandbox needs. Raises Unusable, and is then asked anew the next time.
    """
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


def wrapped(profile: Profile, program: str, disables_namespaces: bool) -> list[str]:
    """The argument vector that comes before the command. It ends with ``--``.

    No `--new-session`: the transport has made the session, and finds the sandbox's processes by their group. No
    `--die-with-parent`: that would be the end of the thread which started the server, and the guard does it for the
    process.
    """
    scratch = str(profile.memory or _SCRATCH_BYTES)
    arguments = [program, *_NAMESPACES]
    if disables_namespaces:
        arguments.append("--disable-userns")
    if profile.network:
        arguments.remove("--unshare-net")
    partly = sorted({place for file in profile.left_out if isdir(place := os.path.dirname(file))})
    arguments += ["--ro-bind", "/", "/"] if "/" not in partly else []
    steps = [*_partly_shown(profile, partly), *_hidden(profile, scratch), *_shown(profile, partly)]
    steps.sort(key=lambda step: (step[0].count("/") - (step[0] == "/"), step[0]))
    for place, step in steps:
        arguments += [*step, place]
    # The kernel lets root set what is in /proc/sys from any namespace, such as the program that it runs after a crash.
    arguments += ["--proc", "/proc", "--ro-bind", _SETTINGS, _SETTINGS, "--dev", "/dev"]
    arguments += ["--perms", "1777", "--size", scratch, "--tmpfs", _SHARED_MEMORY, "--remount-ro", "/dev"]
    # Only now, because places within them had to be made.
    for place in (*profile.hidden, *profile.masked, *partly):
        if place not in profile.private and isdir(place):
            arguments += ["--remount-ro", place]
    return [*arguments, "--chdir", profile.cwd, "--"]


def _partly_shown(profile: Profile, directories: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Directories with files that are left out, entry by entry; an outer one first."""
    for directory in directories:
        if directory != "/":
            yield directory, ["--tmpfs"]
        for path in entries_without(directory, [*profile.left_out, "/proc", "/dev"]):
            # One that has gone meanwhile is no loss.
            yield path, ["--symlink", os.readlink(path)] if islink(path) else ["--ro-bind-try", path]


def _hidden(profile: Profile, scratch: str) -> Iterator[tuple[str, list[str]]]:
    for place in profile.hidden:
        size = ["--perms", "1777", "--size", scratch] if place in profile.private else []
        yield place, [*size, "--tmpfs"]
    for place in profile.masked:
        yield place, ["--tmpfs"] if isdir(place) else ["--ro-bind", "/dev/null"]


def _shown(profile: Profile, partly: Container[str]) -> Iterator[tuple[str, list[str]]]:
    for place in profile.read:
        if place not in partly:
            yield place, ["--ro-bind", place]
    for place in profile.write:
        yield place, ["--bind", place]
    for link, target in profile.links:
        yield link, ["--symlink", target]
