"""What goes on during a soak: callers that never rest, and somebody who kills their servers."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from gaia.mcp import MCPClientManager
from gaia.mcp.client import MCPClient
from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.policy import RestartPolicy
from tests.chaos.faults import ScriptedServer, tool_name
from tests.soak.figures import Recoveries, Tally

POLICY = RestartPolicy(initial_delay=0.1, max_delay=2.0, max_restarts=100, stable_after=5.0)
"""Faster than the default, so that an hour has more restarts in it."""

TIMEOUT = 2.0
"""Seconds, of each call."""

THINKING = 0.04
"""Seconds that a caller rests between two calls at most: the machine should be busy, not at its limit."""

KILL_EVERY = 0.8
"""Seconds between two kills, on average."""

BALLAST = 100_000
"""Bytes of the arguments of some calls: more than a pipe holds at first."""

CALLS = {
    ("well", False): 800,
    ("well", True): 80,
    ("late", False): 40,
    ("junk", False): 10,
    ("notifications", False): 10,
    ("stderr_flood", False): 3,
    ("oversized_answer", False): 2,
    ("hang", False): 3,
    ("error", False): 5,
    ("crash_mid_line", False): 1,
    ("crash_before_answer", True): 1,
}
"""Which tools are called how often, and whether they are marked as safe to repeat."""

KILLS = {signal.SIGKILL: 8, signal.SIGSEGV: 1, signal.SIGSTOP: 1}
"""How servers are killed how often; a stopped one is alive, and has to be found out."""


@dataclass(frozen=True)
class Target:
    """One server, and what is noted down about it."""

    client: MCPClient
    server: ScriptedServer
    tally: Tally
    recoveries: Recoveries


class Load:
    """Callers and killer, until `stop`. Each has a generator of random numbers of its own."""

    def __init__(self, manager: MCPClientManager, targets: list[Target], callers: int, seed: int) -> None:
        self._manager = manager
        self._targets = targets
        self._stopping = threading.Event()
        self._killing = threading.Event()
        self._numbers = itertools.count()
        seeds = random.Random(seed)
        self._threads = [
            threading.Thread(target=self._call, args=(random.Random(seeds.random()),), name=f"caller-{number}")
            for number in range(callers)
        ]
        self._killer = threading.Thread(target=self._kill, args=(random.Random(seeds.random()),), name="killer")

    def start(self) -> None:
        for thread in (*self._threads, self._killer):
            thread.start()

    def stop_killing(self) -> None:
        self._killing.set()
        self._killer.join()

    def stop(self) -> None:
        """Return when the last call is over."""
        self.stop_killing()
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _call(self, chance: random.Random) -> None:
        choices, weights = list(CALLS), list(CALLS.values())
        while not self._stopping.is_set():
            target = chance.choice(self._targets)
            (fault, safe), number = chance.choices(choices, weights)[0], next(self._numbers)
            arguments = {"text": str(number), "ballast": "x" * (BALLAST if chance.random() < 0.01 else 0)}
            if chance.random() < 0.02:
                self._submit(target, number, tool_name(fault, safe=safe), arguments, cancel=chance.random() < 0.5)
            else:
                self._wait_for(target, number, tool_name(fault, safe=safe), arguments)
            self._stopping.wait(chance.random() * THINKING)

    def _wait_for(self, target: Target, number: int, tool: str, arguments: dict[str, str]) -> None:
        """By the name that an agent would use."""
        target.tally.begin()
        began = time.monotonic()
        result = self._manager.call_tool(f"mcp_{target.server.name}_{tool}", arguments, timeout=TIMEOUT)
        if "error_type" in result:
            target.tally.end(number, result["error_type"], result["delivery"])
            return
        is_own = result["content"][0]["text"] == arguments["text"]
        target.tally.end(number, "ok" if is_own else "WRONG ANSWER", None)
        target.recoveries.answered(began)

    def _submit(self, target: Target, number: int, tool: str, arguments: dict[str, str], *, cancel: bool) -> None:
        target.tally.begin()
        try:
            future = target.client.submit_tool(tool, arguments, timeout=TIMEOUT)
        except MCPError as error:
            target.tally.end(number, error.error_type, error.delivery)
            return
        if cancel and future.cancel():
            target.tally.end(number, "cancelled", "unknown")
            return
        try:
            future.result(TIMEOUT * 10)
        except MCPError as error:
            target.tally.end(number, error.error_type, error.delivery)
        except TimeoutError:
            target.tally.end(number, "NEVER COMPLETED", "unknown")
        else:
            target.tally.end(number, "ok", None)

    def _kill(self, chance: random.Random) -> None:
        while not self._killing.wait(chance.expovariate(1 / KILL_EVERY)):
            target = chance.choice(self._targets)
            number = chance.choices(list(KILLS), list(KILLS.values()))[0]
            pid = target.client.status.pid
            # One that is not well yet is spared: each recovery is measured from one kill.
            if pid is None or not target.client.is_connected() or target.recoveries.is_waiting:
                continue
            target.recoveries.killed(signal.Signals(number).name)
            with suppress(ProcessLookupError):
                os.kill(pid, number)
