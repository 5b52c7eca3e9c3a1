"""What this process holds besides memory: a test that ends with more than it began with has leaked.

The operating system and other threads need a moment to let go, so a difference is watched until it is gone or
`PATIENCE` is over. Nothing is waited for when there is no difference.
"""

import gc
import os
import sys
import threading
import time
from dataclasses import dataclass

import psutil

from gaia.runtime import threads

PATIENCE = 5.0
"""Seconds until a difference counts as a leak."""

_MOMENT = 0.5
"""Seconds within which threads end that have nothing left to do. Collecting garbage helps none of them."""

_SHORT = 1.0
"""Seconds. Threads of pools that are idle for so long at most end by themselves."""

FOREIGN_THREADS = ("pytest_timeout",)
"""Beginnings of the names of threads that come and go with pytest."""

LASTING_FILES = ("/dev/urandom", "/dev/random")
"""Opened once, by the first code that needs them, and kept for the life of the process."""

PROCESS_STARTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
"""The interpreter's audit events of a new process."""

_started: list[str] = []


def count_process_starts() -> None:
    """Take note of each process that this one starts from now on."""

    # The hook outlives this module's names: the interpreter calls it until its very end. `platform` of the standard
    # library runs uname for the first test that asks it about the processor, whichever that is.
    def hook(event: str, arguments: tuple[object, ...], starts: frozenset[str] = PROCESS_STARTS) -> None:
        if event in starts and arguments[:1] != ("uname",):
            _started.append(event)

    sys.addaudithook(hook)


def processes_started() -> list[str]:
    """The events since the last call."""
    started, _started[:] = _started[:], []
    return started


@dataclass(frozen=True)
class Holdings:
    """Threads, descriptors and processes at one moment."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    """Number and what it refers to: a closed descriptor's number is soon taken by another."""
    children: frozenset[psutil.Process]
    """Children and their descendants, zombies included: those were not waited for."""

    @classmethod
    def now(cls) -> "Holdings":
        """What this process holds at this moment."""
        threads = (thread for thread in threading.enumerate() if not thread.name.startswith(FOREIGN_THREADS))
        return cls(frozenset(threads), frozenset(_descriptors()), frozenset(_children()))

    def __sub__(self, before: "Holdings") -> "Holdings":
        """What was added since `before`."""
        return Holdings(
            self.threads - before.threads, self.descriptors - before.descriptors, self.children - before.children
        )

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.threads or self.descriptors or self.children)

    def describe(self) -> list[str]:
        """One line for each thing held."""
        return [
            *sorted(f"thread {thread.name}" for thread in self.threads),
            *(f"descriptor {number} ({target})" for number, target in sorted(self.descriptors)),
            *sorted(_describe_process(process) for process in self.children),
        ]


def leaked_since(before: Holdings, patience: float = PATIENCE) -> Holdings:
    """What is still held that was not held `before`, after at most `patience` seconds."""
    began = time.monotonic()
    if Holdings.now() - before:
        # Their idle threads would end by themselves soon. Waiting for that would be a large part of all tests' time.
        for pool in threads._pools.present():
            if pool._idle_seconds <= _SHORT:
                pool.drain(0.0)
    while added := Holdings.now() - before:
        waited = time.monotonic() - began
        if waited >= patience:
            break
        if not added.threads or waited >= _MOMENT:
            # An object in a reference cycle closes its descriptor when it is collected; that is no leak. It takes tens
            # of milliseconds of the processor in a process that has imported as much as this one.
            gc.collect()
        time.sleep(0.01)
    return added


def kill(processes: frozenset[psutil.Process]) -> None:
    """Kill leaked processes, so that the tests that follow do not suffer from them."""
    for process in processes:
        try:
            process.kill()
            process.wait(PATIENCE)
        except psutil.Error:
            continue  # It ended meanwhile, or is not ours to wait for.


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True) if _has_children() else []


def _has_children() -> bool:
    """Whether there is a child, be it a zombie. Descendants are found through children only, by reading all processes.

    That takes milliseconds, and most tests start none.
    """
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descriptors() -> list[tuple[int, str]]:
    found = []
    for number in _descriptor_numbers():
        try:
            target = _target(number)
        except OSError:
            continue  # The one that listed the folder.
        if target not in LASTING_FILES:
            found.append((number, target))
    return found


def _descriptor_numbers() -> list[int]:
    # Windows has no such folder, and no cheap way to ask.
    return [int(name) for name in os.listdir("/dev/fd")] if os.path.isdir("/dev/fd") else []


def _target(number: int) -> str:
    if os.path.isdir("/proc/self/fd"):
        return os.readlink(f"/proc/self/fd/{number}")
    status = os.fstat(number)
    return f"device {status.st_dev}, inode {status.st_ino}"


def _describe_process(process: psutil.Process) -> str:
    try:
        status = process.status()
        command = "" if status == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.Error:
        return f"process {process.pid}, which ended meanwhile"
    return f"process {process.pid} ({status}) {command}".rstrip()
