"""Hosts, servers, programs and nodes of placed servers are lost or stand still under load, and each call is judged.

    python -m tests.soak.placed [--ray] [--hosts 100] [--servers 100] [--programs 20] [--pauses 30] [--nodes 0]
                                [--callers 16] [--minutes M] [--seed N] [--json]

Four programs share one placed server, and each has another one of its own. Their callers call without a pause. A server
writes each call into a ledger before it acts. Servers, their hosts and programs are killed; hosts and programs stand
still for up to twice the lease. With ``--ray`` the servers are on a Ray cluster on this machine, and nodes lose all
their processes at once, beside a bare actor of Ray's that is lost in the same way.

Ends with 0 if all went well, and with 1 if a call has no outcome, if the ledger has a call that was said not to be
sent, lacks one that was answered, has one of a tool that is not safe to repeat twice, or one that was made after its
deadline, or if a process, a file, a thread or a descriptor was left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tests.soak.figures import summary
from tests.waiting import wait_until

SERVER = Path(__file__).parents[1] / "servers" / "noting_server.py"
ROOT = Path(__file__).parents[2]

TEMPORARY = "tmp"
"""The folder of the programs' temporary files."""

PROGRAMS = 4
LEASE = 2.0
PAUSES = (0.25, 2.0)
"""How many leases a pause takes, from the shortest to the longest."""

RESTART = {"initialDelay": 0.05, "maxDelay": 0.5, "maxRestarts": 100_000, "stableAfter": 0.5}
"""Faster than the default, so that a minute has many kills in it."""

LATE = 0.25
"""Seconds after its deadline that a server may note a call: the time of the network, and of busy processors."""

COMES_BACK = 60.0
"""Seconds after which a server counts as not coming back."""

SETTLED = 0.5
"""Seconds, at most, of good answers of all before the next loss."""

ENDS = 30.0
"""Seconds that a program has to end, and all that it has started."""


@dataclass
class Call:
    """What is known of one call."""

    program: str
    server: str
    tool: str
    deadline: float
    told: str | None = None
    """"ok" or the type of the error; None if its program was told nothing so far."""
    delivery: str | None = None


@dataclass
class Figures:
    """All that is reported. Times are in seconds."""

    engine: str
    callers: int
    seed: int
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    told: dict[str, int] = field(default_factory=dict)
    of_killed_programs: int = 0
    """Calls whose program was killed before it was told anything."""
    repeated: int = 0
    """Calls that are safe to repeat, and were."""
    latest: float = 0.0
    """How long after its deadline a call was made at most; negative if before."""
    recoveries: dict[str, dict[str, float]] = field(default_factory=dict)
    """By the kind of the fault: from its end to the next good answer of each program that has the server."""
    wrong: list[str] = field(default_factory=list)


class Calls:
    """What programs tell of their calls. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        """Owns what follows."""
        self.calls: dict[str, Call] = {}
        self.errors: Counter[str] = Counter()
        self._places: dict[tuple[str, str], tuple[int, str | None]] = {}
        """By program and server: the host's process, and its node."""
        self._began: dict[str, float] = {}
        self._good: dict[tuple[str, str], tuple[float, float]] = {}
        """By program and server: beginning and end of the last good call. """
        self._marks: dict[tuple[str, str], float] = {}
        """By program and server: since when a good answer is waited for."""
        self._answers: dict[tuple[str, str], float] = {}

    def heard(self, program: str, message: dict[str, Any]) -> None:
        with self._lock:
            if "call" in message:
                call = Call(program, message["server"], message["tool"], message["at"] + message["timeout"])
                self.calls[message["call"]] = call
                self._began[message["call"]] = message["at"]
                return
            call = self.calls[message["end"]]
            call.told, call.delivery = message["told"], message["delivery"]
            key, began = (call.program, call.server), self._began.pop(message["end"])
            if call.told != "ok":
                self.errors[f"{call.told}, {call.delivery}: {message['error']}"] += 1
                return
            self._places[key] = tuple(message["place"])
            if began >= self._marks.get(key, float("inf")):
                del self._marks[key]
                self._answers[key] = message["at"]
                self._lock.notify_all()

    def place(self, key: tuple[str, str]) -> tuple[int, str | None]:
        with self._lock:
            return self._places[key]

    def keys(self, is_meant: Callable[[str, str, tuple[int, str | None]], bool]) -> list[tuple[str, str]]:
        """Programs with servers for which it holds, by their names and their last place."""
        with self._lock:
            return [key for key, place in self._places.items() if is_meant(*key, place)]

    def wait(self, keys: Iterable[tuple[str, str]], since: float) -> list[float]:
        """Wait until each has got a good answer to a call that was begun since then. Returns how long each took."""
        keys = list(keys)
        with self._lock:
            self._marks.update(dict.fromkeys(keys, since))
            if not self._lock.wait_for(lambda: not self._marks, COMES_BACK):
                raise RuntimeError(f"no good answer within {COMES_BACK:g} s: {sorted(self._marks)}")
            return [self._answers.pop(key) - since for key in keys]


class Program:
    """One program, see `placed_program`. A killed one is started again."""

    def __init__(self, name: str, calls: Calls, settings: dict[str, Any], folder: Path) -> None:
        self.name = name
        self.killed = 0
        self._calls = calls
        self._settings = settings
        self._errors = (folder / f"{name}.stderr").open("ab")
        self._environment = {**os.environ, "TMPDIR": str(folder / TEMPORARY)}
        self._left: list[str] | None = None
        self.start()

    def start(self) -> None:
        settings = {**self._settings, "name": f"{self.name}-{self.killed}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.placed_program", json.dumps(settings)],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def kill(self) -> None:
        self.process.kill()
        self._collect()
        self.killed += 1

    def end(self) -> Iterable[str]:
        """End it as a program that is done. Returns what is wrong."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(2 * COMES_BACK)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = None
        self._collect()
        self._errors.close()
        if code != 0 or self._left is None:
            yield f"{self.name} ended with {code}"
        yield from (f"{self.name} has left {what}" for what in self._left or ())

    def _collect(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.wait()
        self.process.stdin.close()
        self._reader.join()
        self.process.stdout.close()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "left" in message:
                self._left = message["left"]
            else:
                self._calls.heard(self.name, message)


class Soak:
    """One run: it does what it was told to, until the time is up."""

    def __init__(self, folder: Path, options: argparse.Namespace, console: Console) -> None:
        self._folder = folder
        self._options = options
        self._console = console
        self._chance = random.Random(options.seed)
        self._ledger = folder / "ledger"
        self._ledger.touch()
        (folder / TEMPORARY).mkdir()
        self._calls = Calls()
        self._programs: list[Program] = []
        self._recoveries: dict[str, list[float]] = {}
        self._cluster: Any = None
        self.figures = Figures("ray" if options.ray else "process", options.callers, options.seed)

    def run(self) -> None:
        began = time.monotonic()
        with ExitStack() as stack:
            placement: dict[str, Any] = {"engine": "process"}
            if self._options.ray:
                # Ray is not needed for the rest.
                from tests.soak.lossy_cluster import LossyCluster

                self._cluster = stack.enter_context(LossyCluster())
                placement = {"engine": "ray", "address": self._cluster.address, "resources": {"browser": 1}}
            try:
                self._programs += [self._program(number, placement) for number in range(PROGRAMS)]
                self._settle()
                self._strike()
            except (OSError, RuntimeError, psutil.Error) as error:
                self.figures.wrong.append(f"{type(error).__name__}: {error}")
            for program in self._programs:
                self.figures.wrong += program.end()
            self.figures.wrong += self._left()
        self.figures.seconds = time.monotonic() - began
        self._judge()

    def _program(self, number: int, placement: dict[str, Any]) -> Program:
        entry = {
            "command": sys.executable,
            "args": ["-P", str(SERVER), str(self._ledger)],
            "env": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            "restart": RESTART,
        }
        shared = {**placement, "lease": LEASE, "lifetime": "detached", "name": "soak/shared"}
        servers = {
            "shared": {**entry, "placement": shared},
            "own": {**entry, "placement": {**placement, "lease": LEASE}},
        }
        callers = self._options.callers // PROGRAMS
        return Program(f"p{number}", self._calls, {"servers": servers, "callers": callers}, self._folder)

    def _strike(self) -> None:
        options = self._options
        wanted = {
            self._kill_host: options.hosts,
            self._kill_server: options.servers,
            self._kill_program: options.programs,
            self._pause_host: (options.pauses + 1) // 2,
            self._pause_program: options.pauses // 2,
            self._lose_node: options.nodes,
        }
        faults = [fault for fault, count in wanted.items() for _ in range(count)]
        self._chance.shuffle(faults)
        until = time.monotonic() + options.minutes * 60
        for number, fault in enumerate(faults, 1):
            if time.monotonic() > until:
                self._console.print("the time is up")
                return
            time.sleep(self._chance.uniform(0, SETTLED))
            name = fault()
            self.figures.faults[name] = self.figures.faults.get(name, 0) + 1
            last = max(self._recoveries[name][-2:])
            self._console.print(f"{number} of {len(faults)}: {name} {last:.2f} s; {len(self._calls.calls)} calls")
            self._settle()

    def _settle(self) -> None:
        every = [(program.name, server) for program in self._programs for server in ("shared", "own")]
        self._calls.wait(every, time.monotonic())

    def _recovered(self, name: str, keys: Iterable[tuple[str, str]], since: float) -> str:
        self._recoveries.setdefault(name, []).extend(self._calls.wait(keys, since))
        return name

    def _choose(self) -> tuple[tuple[int, str | None], list[tuple[str, str]]]:
        """The host of a server with its node, and the programs that use it."""
        # The shared one as often as all others together.
        program = self._chance.choice(self._programs).name
        place = self._calls.place((program, self._chance.choice(("shared", "own"))))
        return place, self._calls.keys(lambda _program, _server, other: other[0] == place[0])

    # The faults. Each returns its name.

    def _kill_host(self) -> str:
        (host, _), keys = self._choose()
        os.kill(host, signal.SIGKILL)
        return self._recovered("host killed", keys, time.monotonic())

    def _kill_server(self) -> str:
        (host, _), keys = self._choose()
        # A host tells of the server's process with a beat only.
        for process in psutil.Process(host).children(recursive=True):
            with suppress(psutil.Error):
                if str(SERVER) in process.cmdline():
                    process.kill()
        return self._recovered("server killed", keys, time.monotonic())

    def _kill_program(self) -> str:
        program = self._chance.choice(self._programs)
        program.kill()
        killed = time.monotonic()
        program.start()
        return self._recovered("program killed", self._calls.keys(lambda name, *_: name == program.name), killed)

    def _pause_host(self) -> str:
        (host, _), keys = self._choose()
        return self._pause("host", host, keys)

    def _pause_program(self) -> str:
        program = self._chance.choice(self._programs)
        return self._pause("program", program.process.pid, self._calls.keys(lambda name, *_: name == program.name))

    def _pause(self, what: str, pid: int, keys: list[tuple[str, str]]) -> str:
        leases = self._chance.uniform(*PAUSES)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(leases * LEASE)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return self._recovered(
            f"{what} stood still {'beyond' if leases > 1 else 'within'} the lease", keys, time.monotonic()
        )

    def _lose_node(self) -> str:
        (_, node), _ = self._choose()
        keys = self._calls.keys(lambda _program, _server, other: other[1] == node)
        lost, bare = self._cluster.lose(node)
        self._recovered("node lost", keys, lost)
        if bare is not None:
            self._recoveries.setdefault("node lost, bare actor", []).append(bare())
        self._cluster.replace()
        return "node lost"

    # The end.

    def _left(self) -> Iterable[str]:
        wait_until(lambda: not _processes_at(self._folder), ENDS)
        yield from (f"{process} is left" for process in _processes_at(self._folder))
        files = [*self._folder.glob(".gaia/hosts/[!.]*"), *(self._folder / TEMPORARY).iterdir()]
        yield from (f"{file} is left" for file in files)

    def _judge(self) -> None:
        figures, calls = self.figures, self._calls.calls
        made: dict[str, list[float]] = {}
        for line in self._ledger.read_text().splitlines():
            call, when = line.split()
            made.setdefault(call, []).append(float(when))
        last = {f"{program.name}-{program.killed}" for program in self._programs}
        figures.calls = len(calls)
        figures.told = dict(Counter(_words(call) for call in calls.values() if call.told is not None).most_common())
        for name, call in calls.items():
            times = made.pop(name, [])
            was_killed = name.rpartition("-")[0] not in last
            figures.of_killed_programs += call.told is None and was_killed
            figures.repeated += call.tool == "look" and len(times) > 1
            if times:
                late = max(times) - call.deadline
                figures.latest = max(figures.latest or late, late)
            if (wrong := violation(call, times, was_killed=was_killed)) is not None:
                figures.wrong.append(f"{name} {wrong}: {call}")
        figures.wrong += [f"{name} was made and never begun" for name in made]
        figures.recoveries = {name: summary(times) for name, times in sorted(self._recoveries.items())}
        for error, count in self._calls.errors.most_common(20):
            self._console.print(f"{count} times {error}", markup=False)


def violation(call: Call, made: list[float], *, was_killed: bool) -> str | None:
    """What must not be of a call that the server has made at these times; `was_killed` is about its program."""
    if call.told is None and not was_killed:
        return "has no outcome"
    if call.told == "ok" and not made:
        return "was answered and never made"
    if call.delivery == "not_sent" and made:
        return "was said not to be sent, and was made"
    if call.tool == "note" and len(made) > 1:
        return f"was made {len(made)} times"
    if made and (late := max(made) - call.deadline) > LATE:
        return f"was made {late:.2f} s after its deadline"
    return None


def _words(call: Call) -> str:
    return f"{call.tool}: {call.told}" + (f", {call.delivery}" if call.delivery else "")


def _processes_at(home: Path) -> list[str]:
    """Hosts, servers, programs and their helpers with this home directory, which a Ray cluster has, too."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            is_ours = any(word in command for word in ("gaia.mcp", "gaia/mcp", str(SERVER)))
            if is_ours and process.pid != os.getpid() and process.environ().get("HOME") == str(home):
                found.append(f"process {process.pid}: {command[:200]}")
    return found


def show(figures: Figures, console: Console) -> None:
    table = Table(title=f"{figures.calls} calls of {figures.callers} callers in {figures.seconds:.0f} s")
    for column in ("time to the next good answer", "times", "p50", "p95", "longest"):
        table.add_column(column, justify="left" if column.startswith("time to") else "right")
    for name, times in figures.recoveries.items():
        table.add_row(name, str(int(times["count"])), *(f"{times[key]:.2f} s" for key in ("p50", "p95", "max")))
    console.print(table)
    console.print(", ".join(f"{name}: {count}" for name, count in figures.faults.items()))
    for what, count in figures.told.items():
        console.print(f"{what}: {count}")
    console.print(
        f"of killed programs: {figures.of_killed_programs}; repeated because they are safe: {figures.repeated}; "
        f"latest after its deadline: {figures.latest:.3f} s"
    )
    for problem in figures.wrong:
        console.print(f"WRONG: {problem}", style="red", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.placed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ray", action="store_true", help="on a Ray cluster; without it, by the engine `process`")
    parser.add_argument("--hosts", type=int, default=100, help="how many hosts are killed")
    parser.add_argument("--servers", type=int, default=100, help="how many servers are killed")
    parser.add_argument("--programs", type=int, default=20, help="how many programs are killed")
    parser.add_argument("--pauses", type=int, default=30, help="how often a host or a program stands still")
    parser.add_argument("--nodes", type=int, default=0, help="how many nodes are lost, with --ray")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=120.0, help="no further fault after so many minutes")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.nodes and not options.ray:
        parser.error("--nodes needs --ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(prefix="gaia-soak-") as folder:
        # The files of shared hosts are there, and all processes have it in their environment.
        os.environ["HOME"] = folder
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
