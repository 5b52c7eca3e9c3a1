"""The guard: a small process that ends the servers of a host that was killed.

An isolated interpreter runs it by path, so it imports the standard library only. Its standard input is a pipe from the
host: ``+ PID MARK`` protects the process group PID, ``- PID`` releases it. When the pipe ends, or the host is no longer
its parent, the guard terminates all process groups that are still protected, then kills them.
"""

from __future__ import annotations

# Few imports, because the guard starts together with the first server.
import os
import select
import signal
import sys
import time

_HOST_CHECK_SECONDS = 1.0
_TERMINATE_SECONDS = 2.0
_POLL_SECONDS = 0.05


def main(host: int) -> None:
    # A signal that ends the host must not end the guard first.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    end(watch(host))


def watch(host: int) -> dict[int, str]:
    """Follow the host's messages until the host is gone; returns the groups still protected, with their marks."""
    protected: dict[int, str] = {}
    pending = b""
    while True:
        if not _input_ready():
            if os.getppid() != host:
                return protected
            continue
        data = os.read(0, 65536)
        if not data:
            return protected
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            action, pid, *mark = line.decode().split()
            if action == "+":
                protected[int(pid)] = mark[0]
            else:
                protected.pop(int(pid), None)


def _input_ready() -> bool:
    # Windows cannot wait for pipes; there only the end of the pipe counts.
    return os.name == "nt" or bool(select.select([0], [], [], _HOST_CHECK_SECONDS)[0])


def end(protected: dict[int, str]) -> None:
    if not protected:
        return
    if os.name == "nt":
        import subprocess

        for pid in protected:
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(pid)], check=False, capture_output=True)
        return
    for group in protected:
        signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + _TERMINATE_SECONDS
    while any(signal_group(group, 0) for group in protected) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for group in protected:
        signal_group(group, signal.SIGKILL)
    for pid in marked_processes({mark.encode() for mark in protected.values()}):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue  # It ended meanwhile.


def signal_group(group: int, number: int) -> bool:
    """False if the group is gone."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def marked_processes(marks: set[bytes]) -> list[int]:
    """Processes with one of the marks in their environment, also outside of the group. Only with /proc."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue  # It ended meanwhile, or is another user's.
        if any(mark in environment for mark in marks):
            found.append(int(name))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
