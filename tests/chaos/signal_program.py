"""A program that is interrupted by real signals while it connects, calls and disconnects; started by `test_signals`.

``signal_program.py OPERATION HANDLER ROUNDS SEED`` prints one JSON object, with what went wrong.
"""

import faulthandler
import json
import random
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

import psutil

from gaia.mcp import demo_server
from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig

PATIENCE = 60.0
CONFIGURATION = {"command": sys.executable, "args": ["-I", "-S", demo_server.__file__], "protocol": "handshake"}

manager = MCPClientManager(MCPConfig("servers.json", create=True))
handled: list[str] = []


def add_server() -> None:
    manager.add_server("demo", CONFIGURATION)


def call_tool() -> None:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        manager.call_tool("mcp_demo_add", {"a": 1, "b": 2}, timeout=PATIENCE)


def disconnect_all() -> None:
    manager.disconnect_all()


OPERATIONS = {"add_server": (add_server, 0.3), "call_tool": (call_tool, 0.05), "disconnect_all": (disconnect_all, 0.1)}
"""Each with the seconds within which it is interrupted."""


def disconnects(*_: Any) -> None:
    manager.disconnect_all()
    handled.append("disconnected")


def calls(*_: Any) -> None:
    with suppress(RuntimeError):
        handled.append(json.dumps(manager.call_tool("mcp_demo_add", {"a": 1, "b": 2}, timeout=PATIENCE)))
    manager.status()


def raises(*_: Any) -> None:
    handled.append("raised")
    raise KeyboardInterrupt


HANDLERS = {"disconnects": disconnects, "calls": calls, "raises": raises}


def left_behind() -> list[str]:
    """The servers that run, and their supervisors.

    The processes of the package itself end a moment after the last server.
    """
    supervisors = [thread.name for thread in threading.enumerate() if "supervisor" in thread.name]
    processes = psutil.Process().children(recursive=True)
    return supervisors + [str(process) for process in processes if demo_server.__file__ in _arguments(process)]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


def interrupt(name: str, delay: float, wrong: list[str]) -> None:
    operation, _ = OPERATIONS[name]
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        operation()
        while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
            time.sleep(0.001)
    except (KeyboardInterrupt, RuntimeError):
        # The handler's, or the server was taken away under the operation.
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    manager.disconnect_all()
    # An exception leaves the end of a server to its supervisor.
    while left_behind() and time.monotonic() < began + PATIENCE:
        time.sleep(0.02)
    wrong += [f"{process} is left after {delay}" for process in left_behind()]
    if time.monotonic() > began + PATIENCE:
        wrong.append(f"it took {time.monotonic() - began:.1f} s after {delay}")


def main() -> None:
    name, handler, rounds, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    random.seed(seed)
    signal.signal(signal.SIGALRM, HANDLERS[handler])
    wrong: list[str] = []
    # One that never returns is reported with the stack of each thread.
    faulthandler.dump_traceback_later(rounds * PATIENCE, exit=True)
    for _ in range(rounds):
        try:
            if name != "add_server":
                add_server()
            interrupt(name, random.uniform(1e-4, OPERATIONS[name][1]), wrong)
        except BaseException:  # noqa: BLE001 - the test shows it
            wrong.append(traceback.format_exc())
            manager.disconnect_all()
        for known in list(manager.config.get_servers()):
            manager.config.remove_server(known)
    bad = [result for result in handled if '"error_type": "timeout"' in result]
    print(json.dumps({"handled": len(handled), "wrong": wrong, "timeouts": bad}))


main()
