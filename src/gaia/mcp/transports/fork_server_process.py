"""The fork server: starts a host's servers on Linux, each below a reaper that ends all of its processes.

The processes are: host → fork server → reaper (one for each server) → server → the server's own children. A reaper is a
"child subreaper" (prctl(2)): when the parent of any descendant of the server ends, the descendant becomes the reaper's
child, in any session, group or environment. So when a reaper has no children, no process of its server is left. The
fork server forks a reaper without a new interpreter, which takes a millisecond and shares its memory.

An isolated interpreter runs it as a top-level module, so it imports the standard library only. Standard input is a
socket of the host; each message on it is a byte with five descriptors: the reaper's socket, the server's standard
input, output and error output, and its working directory. On its socket a reaper reads a request (see `read_request`),
then commands of one byte: ``T`` and ``K`` send SIGTERM and SIGKILL to the server's process group, ``E`` ends all
remaining processes. It writes lines: ``started PID REAPER`` or ``failed WHY``; ``exited STATUS``; ``ended`` and the ids
of the processes that are left.
"""

from __future__ import annotations

import array
import os
import select
import time

# The first server waits for these imports. The Python parts of `signal`, `socket` and `ctypes` would take as long as
# the start of the interpreter.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Container
else:
    import _signal as signal
    import _socket as socket

UNSUPPORTED = 3
"""Exit status if the system has no subreapers, or /proc does not show their children."""

_HOST_CHECK_SECONDS = 1.0
_TERMINATE_SECONDS = 2.0

_STRAY_SECONDS = 1.0
"""Between SIGTERM and SIGKILL, for the processes that a server leaves behind."""

_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.01
_LEAVE_SECONDS = _TERMINATE_SECONDS + _KILL_SECONDS + 5.0
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_DESCRIPTORS = 5
_HOST_IS_GONE = signal.SIGUSR1
_DEFAULTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, _HOST_IS_GONE)
"""Python and this program ignore or handle these; a server starts with the system's defaults."""


class Children:
    """The children of this process: waits for them, and ends them. Make a new one after a fork."""

    def __init__(self) -> None:
        self.is_host_gone = False
        self.are_any = True
        self._wakeup, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, _HOST_IS_GONE):
            signal.signal(number, lambda *_: None)

    def wait(self, descriptor: int | None, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds for a signal or for `descriptor`. True if `descriptor` can be read."""
        watched = [self._wakeup] if descriptor is None else [self._wakeup, descriptor]
        readable, _, _ = select.select(watched, (), (), timeout)
        if self._wakeup in readable and bytes([_HOST_IS_GONE]) in os.read(self._wakeup, 65536):
            self.is_host_gone = True
        return descriptor in readable

    def reap(self) -> dict[int, int]:
        ended = {}
        try:
            while (result := os.waitpid(-1, os.WNOHANG))[0]:
                ended[result[0]] = result[1]
            self.are_any = True
        except ChildProcessError:
            self.are_any = False
        return ended

    def end(self, reap: Callable[[], object], spare: Container[int] = ()) -> list[int]:
        """End all descendants except those in `spare` and below; returns the ids of the remaining ones."""
        deadline = time.monotonic() + _KILL_SECONDS
        while True:
            reap()
            found = descendants(spare) if self.are_any else set()
            if not found or time.monotonic() >= deadline:
                return sorted(found)
            # All are stopped before the first is killed. Otherwise a process that starts others could use the room that
            # the killed ones leave.
            stopped: set[int] = set()
            while (new := found - stopped) and time.monotonic() < deadline:
                send(new, signal.SIGSTOP)
                stopped |= new
                found = descendants(spare)
            send(stopped, signal.SIGKILL)
            self.wait(None, _POLL_SECONDS)


def main(host: int) -> None:
    # A signal that ends the host must not end the fork server first. The host starts it with these signals blocked.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    children = Children()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not become_subreaper("gaia-guard") or not is_proc_ours():
        os._exit(UNSUPPORTED)
    serve(host, children)
    os._exit(0)


def serve(host: int, children: Children) -> None:
    requests = socket.socket(fileno=0)
    reapers: set[int] = set()

    def reap() -> bool:
        """True if a reaper was killed: the processes of its server are now children of the fork server."""
        ended = children.reap()
        lost = any(os.WIFSIGNALED(status) for pid, status in ended.items() if pid in reapers)
        reapers.difference_update(ended)
        return lost

    is_open = True
    deadline = float("inf")
    while (is_open or reapers) and time.monotonic() < deadline:
        if children.wait(0 if is_open else None, _HOST_CHECK_SECONDS):
            is_open = start_reaper(requests, reapers)
        if reap():
            children.end(reap, spare=reapers)
        if os.getppid() != host and deadline == float("inf"):
            # The reapers notice it by their sockets, unless a forked child of the host has copies of those.
            is_open, deadline = False, time.monotonic() + _LEAVE_SECONDS
            send(reapers, _HOST_IS_GONE)
    children.end(reap)


def start_reaper(requests: socket.socket, reapers: set[int]) -> bool:
    """Fork a reaper for the next message; False if there will be no more."""
    try:
        data, ancillary, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return False
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    # There are fewer if this process has no room for more descriptors. The host notices that the socket is closed.
    if len(descriptors) == _DESCRIPTORS:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(descriptors[0], f"failed {error}\n".encode())
        else:
            if pid == 0:
                status = 1
                try:
                    os.dup2(1, 0)
                    status = Reaper(*descriptors).run()
                finally:
                    os._exit(status)
            reapers.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return bool(data)


class Reaper:
    def __init__(self, control: int, stdin: int, stdout: int, stderr: int, directory: int) -> None:
        self._control = control
        self._pipes = (stdin, stdout, stderr)
        self._directory = directory
        self._children = Children()
        self._server: int | None = None
        """The server's process id. None when it has been waited for: another process may then get the id."""

    def run(self) -> int:
        """Start the server, and stay until the host ends it or is gone. Returns 1 if any process is left, else 0."""
        become_subreaper("gaia-reaper")
        if not self._start():
            return 0
        while not self._children.is_host_gone:
            if self._children.wait(self._control, None):
                command = self._receive()
                if command == b"E":
                    self._ask_strays_to_end()
                    break
                if not command:
                    self._children.is_host_gone = True
                elif self._server is not None:
                    signal_group(self._server, signal.SIGTERM if command == b"T" else signal.SIGKILL)
            self._reap()
        if self._children.is_host_gone and self._server is not None:
            signal_group(self._server, signal.SIGTERM)
            self._wait_while(lambda: self._server is not None, _TERMINATE_SECONDS)
        left = self._children.end(self._reap)
        self._tell(" ".join(["ended", *map(str, left)]))
        return 1 if left else 0

    def _start(self) -> bool:
        request = read_request(self._control)
        if request is None:
            return False
        arguments, environment = request
        try:
            os.fchdir(self._directory)
            self._server = os.posix_spawn(
                arguments[0],
                arguments,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, pipe, number) for number, pipe in enumerate(self._pipes)],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULTED,
            )
        except OSError as error:
            self._tell(f"failed {error}")
            return False
        os.chdir("/")
        for descriptor in (*self._pipes, self._directory):
            os.close(descriptor)
        self._tell(f"started {self._server} {os.getpid()}")
        return True

    def _reap(self) -> None:
        status = self._children.reap().get(self._server or 0)
        if status is not None:
            self._server = None
            self._tell(f"exited {status}")

    def _ask_strays_to_end(self) -> None:
        self._reap()
        if self._children.are_any:
            found = descendants()
            send(found, signal.SIGTERM)
            send(found, signal.SIGCONT)
            self._wait_while(lambda: self._children.are_any, _STRAY_SECONDS)

    def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while condition() and (remaining := deadline - time.monotonic()) > 0:
            self._children.wait(None, remaining)
            self._reap()

    def _receive(self) -> bytes:
        try:
            return os.read(self._control, 1)
        except OSError:
            return b""

    def _tell(self, line: str) -> None:
        try:
            os.write(self._control, line.encode() + b"\n")
        except OSError:
            self._children.is_host_gone = True


def read_request(control: int) -> tuple[list[bytes], dict[bytes, bytes]] | None:
    """Read the arguments and the environment of a server; None if the host has closed the socket.

    The format is eight bytes with the length of the rest; then, each after a NUL: the number of arguments, the
    arguments, and ``NAME=value`` for each variable.
    """
    length, content = 8, b""
    while len(content) < length:
        chunk = os.read(control, min(length - len(content), 65536))
        if not chunk:
            return None
        content += chunk
        if length == 8 == len(content):
            length += int.from_bytes(content, "big")
    _, count, *fields = content[8:].split(b"\0")
    arguments, assignments = fields[: int(count)], fields[int(count) :]
    pairs = (assignment.partition(b"=") for assignment in assignments)
    return arguments, {name: value for name, _, value in pairs}


def become_subreaper(name: str) -> bool:
    """Also set `name`, which `ps` shows. False if the system has no subreapers, or Python cannot call prctl."""
    try:
        import _ctypes
    except ImportError:
        return False
    # None stands for the program itself, which contains the C library.
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (_PR_SET_NAME, name.encode(), 0, 0, 0))
    return bool(_ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)


def is_proc_ours() -> bool:
    """Whether /proc shows the PID namespace of this process."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def descendants(spare: Container[int] = ()) -> set[int]:
    """The descendants of this process, including zombies, without those in `spare` and below."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", 0) as file:
                    # The name of the program, in brackets, may contain spaces and brackets.
                    parent = int(file.read().rpartition(b")")[2].split(None, 2)[1])
            except OSError:
                continue  # It ended meanwhile.
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    parents = [os.getpid()]
    while parents:
        below = [pid for pid in children.get(parents.pop(), ()) if pid not in spare]
        found.update(below)
        parents.extend(below)
    return found


def signal_group(group: int, number: int) -> None:
    """Also continue the group: a stopped process receives no signal but SIGKILL."""
    for each in (number, signal.SIGCONT):
        try:
            os.killpg(group, each)
        except OSError:
            return


def send(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue  # It ended meanwhile, or is another user's.
