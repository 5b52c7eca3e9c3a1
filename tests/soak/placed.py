"""Nodes and actors are lost under load: each call has an outcome, none contradicts the ledger, none is made twice.

    python -m tests.soak.placed [--nodes 100] [--actors 100] [--callers 16] [--minutes M] [--seed N] [--json]

A server is placed on a Ray cluster of three nodes on this machine, and callers call it without a pause. It writes each
call into a ledger before it acts. Nodes lose all their processes at once, and actors are killed. A bare actor of Ray's
is killed in the same run, for the time that Ray itself takes.

Ends with 0 if all went well, and with 1 if a call has no outcome, if the ledger has a call that was said not to be
sent, lacks one that was answered, or has one of a tool that is not safe to repeat twice, or if a process was left.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from rich.console import Console
from rich.table import Table

from gaia.mcp import MCPClient
from tests.placement.small_cluster import SmallCluster
from tests.servers.processes import wait_for_end
from tests.soak.figures import summary

SERVER = Path(__file__).parents[1] / "servers" / "noting_server.py"

TOLD_WITHIN = 60.0
"""Seconds after which a caller counts as told nothing, and a server as not coming back."""

LONGEST = 0.2
"""Seconds that the server takes for a call at most, so that some calls are always under way."""

SAFE = 0.1
"""How many of the calls are of the tool that may be repeated."""

RAY_TELLS = 1.0
"""Seconds from one time that Ray tells a program of lost actors to the next."""

SETTLED = 0.5
"""Seconds of good answers before the next loss."""


@dataclass(frozen=True)
class Outcome:
    """What a caller was told of one call."""

    tool: str
    text: str
    told: str
    """"ok", or the kind of the error and what it says of delivery."""


@dataclass
class Figures:
    """All that is reported. Times are in seconds, from a loss to the next good answer of a call made after it."""

    callers: int
    seed: int
    nodes_lost: int = 0
    actors_killed: int = 0
    seconds: float = 0.0
    calls: int = 0
    told: dict[str, int] = field(default_factory=dict)
    without_outcome: int = 0
    contradictions: int = 0
    """Calls that were answered and are not in the ledger, or were said not to be sent and are."""
    executed_twice: int = 0
    """Calls that are not safe to repeat."""
    repeated: int = 0
    """Calls that are, and were."""
    node_lost: dict[str, float] = field(default_factory=dict)
    node_lost_bare: dict[str, float] = field(default_factory=dict)
    actor_killed: dict[str, float] = field(default_factory=dict)
    actor_killed_bare: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Bare:
    """What Ray alone does: an actor without anything in it."""

    def where(self) -> tuple[int, str]:
        return os.getpid(), ray.get_runtime_context().get_node_id()


class BareActor:
    """The driver's side of it. It needs what the server needs of a node."""

    def __init__(self) -> None:
        options: Any = {"num_cpus": 0, "resources": {"browser": 1}, "max_restarts": -1, "max_task_retries": 0}
        self._actor: Any = ray.remote(**options)(Bare).remote()
        self.pid, self.node = ray.get(self._actor.where.remote())

    def wait_for_answer(self) -> float:
        """The time of the next good answer. A call that fails is made again."""
        deadline = time.monotonic() + TOLD_WITHIN
        while time.monotonic() < deadline:
            with suppress(RayError):
                self.pid, self.node = ray.get(self._actor.where.remote(), timeout=TOLD_WITHIN)
                return time.monotonic()
            time.sleep(0.005)
        raise RuntimeError("the bare actor did not come back")


class Load:
    """Callers, each of which makes one call after the other. Thread-safe."""

    def __init__(self, client: MCPClient, callers: int, seed: int) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        """Owns what follows."""
        self._begun = 0
        self._outcomes: list[Outcome] = []
        self._lost_at: float | None = None
        self._good_at = 0.0
        self._is_good = threading.Event()
        """A call that was made after the loss has got a good answer."""
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{caller}"),)) for caller in range(callers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * TOLD_WITHIN)

    def results(self) -> tuple[int, list[Outcome]]:
        """How many calls were begun, and the outcomes."""
        with self._lock:
            return self._begun, list(self._outcomes)

    def wait_for_answer(self, lost_at: float) -> float:
        """The time of the first good answer of a call that was begun after `lost_at`."""
        with self._lock:
            self._is_good.clear()
            self._lost_at = lost_at
        if not self._is_good.wait(2 * TOLD_WITHIN):
            raise RuntimeError(f"the server did not come back: {self._client.last_error}")
        return self._good_at

    def _run(self, chance: random.Random) -> None:
        while not self._stopping.is_set():
            tool = "look" if chance.random() < SAFE else "note"
            with self._lock:
                text = str(next(self._numbers))
                self._begun += 1
            began = time.monotonic()
            result = self._client.call_tool(
                tool, {"text": text, "seconds": chance.uniform(0, LONGEST)}, timeout=TOLD_WITHIN
            )
            told = f"{result['error_type']}, {result['delivery']}" if "error_type" in result else "ok"
            with self._lock:
                self._outcomes.append(Outcome(tool, text, told))
                if told == "ok" and self._lost_at is not None and began >= self._lost_at:
                    self._good_at, self._lost_at = time.monotonic(), None
                    self._is_good.set()


class Soak:
    """One run: it loses what it was told to, until the time is up."""

    def __init__(self, folder: Path, options: argparse.Namespace, console: Console) -> None:
        self._options = options
        self._console = console
        self._chance = random.Random(options.seed)
        self._ledger = folder / "ledger"
        self._ledger.touch()
        self._deadline = time.monotonic() + options.minutes * 60
        self.figures = Figures(options.callers, options.seed)
        self._times: dict[str, list[float]] = {"node": [], "node bare": [], "actor": [], "actor bare": []}
        self._pids: set[int] = set()

    def run(self) -> None:
        began = time.monotonic()
        cluster = SmallCluster(nodes=0)
        try:
            # Both go where there is room, and the other node stands by.
            cluster.add_node(browser=2)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            client = MCPClient.from_config("it", self._entry())
            bare = BareActor()
            if not client.connect():
                raise RuntimeError(client.last_error)
            try:
                cluster.add_node(browser=2)
                load = Load(client, self._options.callers, self._options.seed)
                load.start()
                try:
                    self._lose(cluster, client, bare, load)
                finally:
                    load.stop()
            finally:
                client.disconnect()
        finally:
            cluster.shutdown()
        self.figures.seconds = time.monotonic() - began
        self.figures.wrong += [f"process {pid} is left" for pid in self._pids if not wait_for_end(pid)]
        self._judge(*load.results())

    def _entry(self) -> dict[str, Any]:
        return {
            "command": sys.executable,
            "args": ["-P", str(SERVER), str(self._ledger)],
            "env": {"PYTHONPATH": os.pathsep.join([str(SERVER.parents[2]), str(SERVER.parents[2] / "src")])},
            "timeout": TOLD_WITHIN,
            "placement": {"resources": {"browser": 1}},
        }

    def _lose(self, cluster: SmallCluster, client: MCPClient, bare: BareActor, load: Load) -> None:
        losses = ["node"] * self._options.nodes + ["actor"] * self._options.actors
        self._chance.shuffle(losses)
        for number, loss in enumerate(losses, 1):
            if time.monotonic() > self._deadline:
                self._console.print("the time is up")
                return
            load.wait_for_answer(time.monotonic() + SETTLED)
            self._note_processes(client)
            if loss == "node":
                self._lose_node(cluster, client, bare, load)
            else:
                self._kill_actors(client, bare, load)
            last = ", ".join(
                f"{name} {times[-1]:.2f} s" for name, times in self._times.items() if times and loss in name
            )
            self._console.print(f"{number} of {len(losses)}: {last}; {load.results()[0]} calls")

    def _note_processes(self, client: MCPClient) -> None:
        status = client.status
        if status.pid is not None:
            self._pids.add(status.pid)

    def _kill_actors(self, client: MCPClient, bare: BareActor, load: Load) -> None:
        """One after the other, so that none waits for a processor that the other uses.

        Ray tells of lost actors once a second, so that an actor that is killed right after another one was told of has
        the longest time of all. The time between is left to chance.
        """
        self._await_chance()
        os.kill(bare.pid, signal.SIGKILL)
        killed = time.monotonic()
        self._times["actor bare"].append(bare.wait_for_answer() - killed)
        self._await_chance()
        placement = client.status.placement
        if placement is None or placement.host_pid is None:
            raise RuntimeError(f"there is no host: {client.last_error}")
        os.kill(placement.host_pid, signal.SIGKILL)
        killed = time.monotonic()
        self._times["actor"].append(load.wait_for_answer(killed) - killed)
        self.figures.actors_killed += 1

    def _await_chance(self) -> None:
        time.sleep(self._chance.uniform(0, RAY_TELLS))

    def _lose_node(self, cluster: SmallCluster, client: MCPClient, bare: BareActor, load: Load) -> None:
        placement = client.status.placement
        if placement is None or placement.node_id is None:
            raise RuntimeError(f"there is no host: {client.last_error}")
        both = placement.node_id == bare.node
        lost = cluster.cut_power(placement.node_id)
        self.figures.nodes_lost += 1
        answers: list[float] = []
        waiting = threading.Thread(target=lambda: answers.append(bare.wait_for_answer()))
        waiting.start()
        self._times["node"].append(load.wait_for_answer(lost) - lost)
        waiting.join()
        if both and answers:
            self._times["node bare"].append(answers[0] - lost)
        cluster.add_node(browser=2)

    def _judge(self, begun: int, outcomes: list[Outcome]) -> None:
        figures, noted = self.figures, Counter(self._ledger.read_text().splitlines())
        figures.calls = begun
        figures.told = dict(Counter(f"{one.tool}: {one.told}" for one in outcomes).most_common())
        figures.without_outcome = begun - len(outcomes)
        if figures.without_outcome:
            figures.wrong.append(f"{figures.without_outcome} calls have no outcome")
        for one in outcomes:
            count = noted[one.text]
            if (one.told == "ok" and not count) or (one.told.endswith("not_sent") and count):
                figures.contradictions += 1
                figures.wrong.append(f"{one} was made {count} times")
            if one.tool == "note" and count > 1:
                figures.executed_twice += 1
                figures.wrong.append(f"{one} was made {count} times")
            figures.repeated += one.tool == "look" and count > 1
        named = {name: summary(times) if times else {} for name, times in self._times.items()}
        figures.node_lost, figures.node_lost_bare = named["node"], named["node bare"]
        figures.actor_killed, figures.actor_killed_bare = named["actor"], named["actor bare"]


def show(figures: Figures, console: Console) -> None:
    table = Table(title=f"{figures.calls} calls of {figures.callers} callers in {figures.seconds:.0f} s")
    for column in ("time to the next good answer", "losses", "p50", "p95", "p99", "longest"):
        table.add_column(column, justify="left" if column.startswith("time") else "right")
    for name, times in (
        ("node lost", figures.node_lost),
        ("node lost, bare actor", figures.node_lost_bare),
        ("actor killed", figures.actor_killed),
        ("actor killed, bare actor", figures.actor_killed_bare),
    ):
        if times:
            seconds = [f"{times[key]:.2f} s" for key in ("p50", "p95", "p99", "max")]
            table.add_row(name, str(int(times["count"])), *seconds)
    console.print(table)
    for what, count in figures.told.items():
        console.print(f"{what}: {count}")
    console.print(
        f"without an outcome: {figures.without_outcome}; contradicting the ledger: {figures.contradictions}; "
        f"made twice: {figures.executed_twice}; repeated because they are safe: {figures.repeated}"
    )
    for problem in figures.wrong:
        console.print(f"WRONG: {problem}", style="red")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.placed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100, help="how many nodes are lost")
    parser.add_argument("--actors", type=int, default=100, help="how many actors are killed")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=120.0, help="no further loss after so many minutes")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(prefix="gaia-soak-") as folder:
        soak = Soak(Path(folder), options, Console(stderr=True))
        # Ray prints what it notices on the standard output.
        with redirect_stdout(sys.stderr):
            soak.run()
    if options.json:
        json.dump(asdict(soak.figures), sys.stdout, indent=2)
    else:
        show(soak.figures, Console())
    return 1 if soak.figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
