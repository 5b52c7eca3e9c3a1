"""Servers behind a gateway are killed while many clients call: each call has an outcome, and none is executed twice.

    python -m tests.soak.gateway [--kills 100] [--clients 32] [--servers 4] [--seed N] [--json]

Half of the clients have sessions, half are of the stateless era. Each server writes every call into a ledger before it
acts. Ends with 0 if all went well, and with 1 if a client was told nothing, if the ledger has a call of a tool that is
not marked as safe to repeat twice, or one that was said not to be sent, or if a process was left behind.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from tests.gateway.gateway_process import ACCEPT, INITIALIZE, GatewayProcess, call_headers, gateway_process, tool_call
from tests.servers.processes import wait_for_end
from tests.soak.figures import summary
from tests.waiting import wait_until

LEDGER_SERVER = Path(__file__).parents[1] / "servers" / "ledger_server.py"

RESTART = {"initialDelay": 0.05, "maxDelay": 0.2, "maxRestarts": 100_000, "stableAfter": 0.5}
"""Faster than the default, so that a minute has many kills in it."""

TOLD_WITHIN = 60.0
"""Seconds after which a client counts as told nothing."""

NOTHING = "TOLD NOTHING"

TOOLS = {"record": 90, "hold": 5, "read": 5}
"""How often clients call what. `hold` and `read` are answered only when the server is killed, `read` by its successor.

Only every other client calls these, so that there is always one whose call is answered."""


@dataclass(frozen=True)
class Outcome:
    """What a client was told of one call."""

    server: str
    tool: str
    text: str
    told: str
    """"ok", or whether the server has got it, in the words of `delivery`."""


@dataclass
class Figures:
    """All that is reported."""

    kills: int
    clients: int
    seed: int
    seconds: float = 0.0
    calls: int = 0
    told: dict[str, int] = field(default_factory=dict)
    """Calls by tool and by what their clients were told."""
    executed_twice: int = 0
    """Calls of the tool that may be repeated."""
    recovery: dict[str, float] = field(default_factory=dict)
    """Seconds from a kill to the next good answer of the server."""
    rss: int = 0
    """Of the gateway in the end, in bytes."""
    wrong: list[str] = field(default_factory=list)


class Server:
    """One server, as the killer sees it. Thread-safe."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.ledger = folder / f"{name}.ledger"
        self.ledger.touch()
        self._lock = threading.Lock()
        """Owns what follows."""
        self._killed_at: float | None = None
        self._is_good = threading.Event()
        self.recoveries: list[float] = []

    @property
    def entry(self) -> dict[str, Any]:
        return {
            "command": sys.executable,
            "args": [str(LEDGER_SERVER), str(self.ledger)],
            "env": {"PYTHONPATH": str(LEDGER_SERVER.parents[2])},
            "restart": RESTART,
        }

    def answered(self, began: float) -> None:
        """A call that began then has got a good answer."""
        with self._lock:
            if self._killed_at is None or began >= self._killed_at:
                if self._killed_at is not None:
                    self.recoveries.append(time.monotonic() - self._killed_at)
                    self._killed_at = None
                self._is_good.set()

    def kill(self, gateway: GatewayProcess) -> bool:
        """Kill it once it has answered; False if it does not."""
        if not self._is_good.wait(TOLD_WITHIN):
            return False
        states = {one["name"]: one for one in gateway.ask("GET", "/status").json["servers"]}
        pid = states[self.name]["pid"]
        with self._lock:
            self._is_good.clear()
            self._killed_at = time.monotonic()
        with suppress(ProcessLookupError, TypeError):
            os.kill(pid, signal.SIGKILL)
        return True


class Client:
    """Calls tools one after the other, until `stop`. Its connection and its session are kept."""

    def __init__(
        self, number: int, port: int, servers: list[Server], numbers: itertools.count[int], chance: random.Random
    ) -> None:
        self._number = number
        self._servers = servers
        self._numbers = numbers
        self._chance = chance
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TOLD_WITHIN)
        self._session: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._call_until_stop, name=f"client-{number}")
        self.outcomes: list[Outcome] = []
        """Belongs to the client's thread until it has ended."""

    def start(self) -> None:
        if self._number % 2:
            self._connection.request("POST", "/mcp", json.dumps(INITIALIZE), ACCEPT)
            response = self._connection.getresponse()
            response.read()
            self._session = response.headers["mcp-session-id"]
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()
        self._connection.close()

    def _call_until_stop(self) -> None:
        while not self._stopping.is_set():
            # Clients 0, 1, 4, 5, …: both eras are among those that wait for kills, and among those that never do.
            tools = TOOLS if self._number // 2 % 2 else {"record": 1}
            (tool,) = self._chance.choices(list(tools), list(tools.values()))
            self._call(self._chance.choice(self._servers), tool)
        # The session outlives everything.
        for server in self._servers:
            self._call(server, "record")

    def _call(self, server: Server, tool: str) -> None:
        text = str(next(self._numbers))
        began = time.monotonic()
        try:
            message = self._answer(f"{server.name}_{tool}", text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            told = f"{NOTHING}: {error!r}"
        else:
            told = _told(message)
        self.outcomes.append(Outcome(server.name, tool, text, told))
        if told == "ok":
            server.answered(began)

    def _answer(self, tool: str, text: str) -> dict[str, Any]:
        request = tool_call(tool, {"text": text}, int(text) + 10)
        headers = call_headers(tool)
        if self._session is not None:
            del request["params"]["_meta"]
            headers = {**ACCEPT, "Mcp-Session-Id": self._session}
        self._connection.request("POST", "/mcp", json.dumps(request), headers)
        body = self._connection.getresponse().read()
        message: dict[str, Any] = json.loads(body)
        return message


def _told(message: dict[str, Any]) -> str:
    if "result" in message:
        failure = message["result"].get("_meta", {}).get(FAILURE_KEY)
        if failure is not None:
            return str(failure["delivery"])
        return "ok" if not message["result"].get("isError") else f"{NOTHING}: {message['result']}"
    return str(message["error"].get("data", {}).get("delivery") or f"{NOTHING}: {message['error']}")


def soak(folder: Path, kills: int, clients: int, servers: int, seed: int) -> Figures:
    figures = Figures(kills, clients, seed)
    chance, numbers = random.Random(seed), itertools.count()
    targets = [Server(f"s{number}", folder) for number in range(servers)]
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {target.name: target.entry for target in targets}}))
    began = time.monotonic()
    with gateway_process("--config", str(config)) as gateway:
        # What it writes has to be read, or it would wait for that in the end.
        assert gateway.process.stderr is not None
        words = deque[str](maxlen=20)
        reader = threading.Thread(target=words.extend, args=(gateway.process.stderr,))
        reader.start()
        load = [
            Client(number, gateway.port, targets, numbers, random.Random(chance.random())) for number in range(clients)
        ]
        for client in load:
            client.start()
        try:
            for number in range(kills):
                if not chance.choice(targets).kill(gateway):
                    figures.wrong.append(f"a server did not come back after {number} kills")
                    break
        finally:
            _end(load, targets, gateway)
        figures.seconds = time.monotonic() - began
        process = psutil.Process(gateway.process.pid)
        figures.rss = process.memory_info().rss
        family = process.children(recursive=True)
        gateway.signal(signal.SIGTERM)
        if not wait_for_end(gateway.process.pid, TOLD_WITHIN):
            figures.wrong.append("the gateway did not end when it was told to")
            gateway.signal(signal.SIGKILL)
        if gateway.process.wait() != 0:
            figures.wrong.append(f"the gateway ended with status {gateway.process.returncode}: {''.join(words)}")
        reader.join()
    left = [child.pid for child in family if not wait_for_end(child.pid)]
    figures.wrong += [f"process {pid} is left" for pid in left]
    _add(figures, [outcome for client in load for outcome in client.outcomes], targets)
    return figures


def _end(load: list[Client], targets: list[Server], gateway: GatewayProcess) -> None:
    """Calls that wait for a kill of their server still get it."""
    for client in load:
        client.stop()
    threads = [threading.Thread(target=client.join) for client in load]
    for thread in threads:
        thread.start()

    def are_over() -> bool:
        return not any(thread.is_alive() for thread in threads)

    while not wait_until(are_over, 1.0):
        for server in gateway.ask("GET", "/status").json["servers"]:
            if server["in_flight"] and server["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(server["pid"], signal.SIGKILL)


def _add(figures: Figures, outcomes: list[Outcome], targets: list[Server]) -> None:
    ledgers = {target.name: Counter(target.ledger.read_text().splitlines()) for target in targets}
    figures.calls = len(outcomes)
    figures.told = dict(Counter(f"{one.tool}: {one.told.partition(':')[0]}" for one in outcomes).most_common())
    recoveries = [seconds for target in targets for seconds in target.recoveries]
    figures.recovery = summary(recoveries) if recoveries else {}
    for one in outcomes:
        count = ledgers[one.server][one.text]
        if one.told.startswith(NOTHING):
            figures.wrong.append(f"{one}")
        elif one.told == "not_sent" and count:
            figures.wrong.append(f"{one} was executed {count} times")
        elif one.told == "ok" and not count:
            figures.wrong.append(f"{one} was not executed")
        elif one.tool != "read" and count > 1:
            figures.wrong.append(f"{one} was executed {count} times")
        figures.executed_twice += one.tool == "read" and count > 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.gateway", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaia-soak-") as folder:
        figures = soak(Path(folder), options.kills, options.clients, options.servers, options.seed)
    for name, value in asdict(figures).items():
        if not options.json:
            print(f"{name}: {value}")
    if options.json:
        json.dump(asdict(figures), sys.stdout, indent=2)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
