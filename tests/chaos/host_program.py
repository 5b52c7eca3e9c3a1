"""A program that uses servers all the time, and to which things happen: run by `tests.chaos.hosts` as a subprocess.

It reads commands on standard input, one a line, and answers each with one line of JSON on standard output. ``finish``,
and the end of input, make it stop calling, disconnect, and report what is wrong with its calls or still there.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from gaia.mcp import MCPClientManager
from gaia.mcp.client import MCPClient
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.direct_process import host_guard
from gaia.mcp.transports.fork_server import fork_server
from tests import leak_check
from tests.chaos.ledger import Ledger
from tests.servers import fault_server
from tests.servers.processes import program
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

EAGER = RestartPolicy(initial_delay=0.02, max_delay=0.1, max_restarts=1000, cooldown=0.2)
CALLERS_PER_SERVER = 2
TOOLS = (
    "well",
    "well",
    "safe_well",
    "late",
    "drip",
    "safe_later",
    "hang",
    "crash_mid_line",
    "safe_crash_before_answer",
)
MARGIN = 15.0
NOBODY = 65534
REAL_TIME = time.time
THREAD_STARTERS = {
    name: getattr(threading, name)
    for name in ("_start_new_thread", "_start_joinable_thread")  # The latter from Python 3.13 on.
    if hasattr(threading, name)
}


class Host:
    """The manager, its callers, and what can be done to this process from within."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._before = leak_check.Holdings.now()
        self._stopping = threading.Event()
        self._harmless = threading.Event()
        self._threads: list[threading.Thread] = []
        self.manager = MCPClientManager(MCPConfig(folder / "servers.json", create=True), restart_policy=EAGER)
        self.manager.load_from_config()
        self._clients = {name: self._client(name) for name in self.manager.list_servers()}
        self._ledgers = {name: Ledger(name) for name in self._clients}

    def _client(self, name: str) -> MCPClient:
        client = self.manager.get_client(name)
        assert client is not None, self.manager.status()
        return client

    # Commands.

    def ready(self) -> Json:
        """Begin to call."""
        for name in self._clients:
            for _ in range(CALLERS_PER_SERVER):
                seed = self._random.random()
                thread = threading.Thread(target=self._keep_calling, args=(name, seed), name="caller", daemon=True)
                thread.start()
                self._threads.append(thread)
        return self.guard()

    def guard(self) -> Json:
        """The guard's process id; None while there is none."""
        return {"guard": fork_server.pid or (host_guard._process and host_guard._process.pid)}

    def call(self) -> Json:
        """Call in the main thread for as long as nothing interrupts it."""
        say({"calling": True})
        ledger, client = next(iter(self._ledgers.items()))[1], next(iter(self._clients.values()))
        while True:
            ledger.call(client, "later", {}, safe=False, timeout=5.0)

    def recover(self) -> Json:
        """Wait until each server answers; nobody does it any harm meanwhile."""
        self._harmless.set()
        recovered = all(
            wait_until(lambda name=name: self._answers(name), PATIENCE)  # type: ignore[misc]
            for name in self._clients
        )
        # As they are without any harm.
        report = {"recovered": recovered, "states": self.states(), "stacks": [] if recovered else _stacks()}
        if not recovered:
            report["stacks"] += [str(ledger.entries[-5:]) for ledger in self._ledgers.values()]
        self._harmless.clear()
        return report

    def states(self) -> Json:
        """State and last error of each server."""
        return {name: [client.state.value, client.last_error] for name, client in self._clients.items()}

    def take_descriptors(self) -> Json:
        """Nothing can be opened any more."""
        lowest_free = os.dup(0)
        os.close(lowest_free)
        _limit(resource.RLIMIT_NOFILE, lowest_free)
        return {}

    def take_threads(self) -> Json:
        """No thread can be started any more: the interpreter's own function fails as it does at the system's limit."""
        for name in THREAD_STARTERS:
            setattr(threading, name, _no_thread)
        return {}

    def take_disk(self) -> Json:
        """No file can grow any more, in this process and what it starts."""
        _limit(resource.RLIMIT_FSIZE, 0)
        return {}

    def take_folder(self) -> Json:
        """The configuration's folder can be read only. Root, who may write anywhere, is nobody for that long."""
        self._folder.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        return {}

    def take_time(self) -> Json:
        """The time of day jumps, to and fro, whenever somebody looks."""
        jumps = itertools.cycle((0.0, 86_400.0, -86_400.0, 3.2e9))
        time.time = lambda: REAL_TIME() + next(jumps)
        return {}

    def give_back(self) -> Json:
        """All is as before."""
        _limit(resource.RLIMIT_NOFILE, None)
        _limit(resource.RLIMIT_FSIZE, None)
        for name, function in THREAD_STARTERS.items():
            setattr(threading, name, function)
        if os.getuid() == 0:
            os.seteuid(0)
        self._folder.chmod(0o755)
        time.time = REAL_TIME
        return {}

    def fork(self) -> Json:
        """A child that uses the manager's copy, and then leaves as programs do."""
        child = os.fork()
        if child == 0:
            refused = [client.call_tool for client in self._clients.values() if not _refuses(client)]
            # Python's exit status tells of a disk that is full, where what was logged to standard error is not written.
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            # Through `atexit`, and all that a program does when it ends.
            sys.exit(len(refused))
        return {"child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}

    def add_server(self) -> Json:
        """Try to connect one more, which writes no file."""
        configuration = {"command": sys.executable, "args": ["-I", "-S", program(fault_server)]}
        try:
            self.manager.add_server("another", configuration)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            return {"error": type(error).__name__, "message": str(error), "servers": self.manager.list_servers()}
        self.manager.remove_server("another")
        return {"error": None}

    def save_server(self) -> Json:
        """Try to save a configuration."""
        try:
            self.manager.config.add_server("another", {"command": "true"})
        except ConfigError as error:
            return {"error": "ConfigError", "message": str(error)}
        return {"error": None}

    def leave(self) -> NoReturn:
        """End in the middle of everything, without a goodbye."""
        sys.exit(7)

    def finish(self) -> Json:
        """Stop calling, disconnect from all, and tell what is wrong."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self.manager.disconnect_all()
        report: Json = {"wrong": [], "calls": 0}
        for name, ledger in self._ledgers.items():
            report["calls"] += len(ledger.entries)
            try:
                ledger.check(read_state(self._folder / f"{name}.state").calls, MARGIN)
            except AssertionError as error:
                report["wrong"].append(str(error))
        report["wrong"] += leak_check.leaked_since(self._before).describe()
        return report

    # Inside.

    def _keep_calling(self, name: str, seed: float) -> None:
        chance = random.Random(seed)
        while not self._stopping.is_set():
            tool = "well" if self._harmless.is_set() else chance.choice(TOOLS)
            entry = self._ledgers[name].call(
                self._clients[name], tool, {}, safe=tool.startswith("safe_"), timeout=chance.choice([0.2, 1.0])
            )
            if entry.seconds < 0.001:
                # Refused, perhaps: not as fast as it can.
                self._stopping.wait(0.005)

    def _answers(self, name: str) -> bool:
        return self._ledgers[name].call(self._clients[name], "well", {}, safe=False, timeout=5.0).outcome == "ok"


def _limit(resource_number: int, soft: int | None) -> None:
    """Set a limit of this process; None: as high as it may be."""
    hard = resource.getrlimit(resource_number)[1]
    resource.setrlimit(resource_number, (hard if soft is None else soft, hard))


def _stacks() -> list[str]:
    """What the threads of this package do at this moment."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return [
        f"{names[ident]}:\n{''.join(traceback.format_stack(frame)[-3:])}"
        for ident, frame in frames
        if names.get(ident, "").startswith("mcp-")
    ]


def _no_thread(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("can't start new thread")


def _refuses(client: MCPClient) -> bool:
    try:
        client.call_tool("well", {"text": "of a child"})
    except RuntimeError as error:
        return "fork" in str(error)
    return False


def say(answer: Json) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    # From Python 3.12 on forking with threads is warned of; it is what is tried here.
    warnings.simplefilter("ignore", DeprecationWarning)
    # A test run under nohup ignores it, and so does what it starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    host = Host(Path(sys.argv[1]), int(sys.argv[2]))
    try:
        for line in sys.stdin:
            command: Callable[[], Json] = getattr(host, line.strip())
            try:
                say(command())
            except Exception as error:
                say({"exception": "".join(traceback.format_exception(error))})
                raise
    except KeyboardInterrupt:
        say({"interrupted": True, **host.finish()})
        raise


if __name__ == "__main__":
    main()
