"""Replicas are killed, added and removed under 16 callers: no call is lost, none is doubled, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.supervision.events import ServerState
from tests.chaos.faults import ScriptedServer, tool_name
from tests.chaos.ledger import Ledger
from tests.chaos.profile import Profile
from tests.servers.processes import is_alive
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.skipif(os.name == "nt", reason="about signals")]

CALLERS = 16
DISTURBANCES = 40
TIMEOUT = 60.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_replicas_come_and_go_under_calls(chaos: Profile, tmp_path: Path, era: str) -> None:
    chance, server, ledger = random.Random(chaos.seed), ScriptedServer("it", tmp_path, era), Ledger("it")
    policy = {"maxRestarts": 1000, "initialDelay": 0.01, "maxDelay": 0.05}
    entry = server.configuration(replicas=4, stateless=True, restart=policy, drainTimeout=0.5)
    enough = threading.Event()

    def call(caller: int) -> None:
        mine = random.Random(f"{chaos.seed}-{caller}")
        while not enough.is_set():
            safe, tool = mine.random() < 0.5, mine.choice(["well", "late", "drip"])
            ledger.call(client, tool_name(tool, safe=safe), {}, safe=safe, timeout=TIMEOUT)

    with MCPClient.from_config("it", entry) as client, ThreadPoolExecutor(CALLERS) as threads:
        calling = [threads.submit(call, caller) for caller in range(CALLERS)]
        try:
            for _ in range(DISTURBANCES):
                pids = [one.pid for one in client.status.replicas if one.pid is not None]
                if chance.random() < 0.25:
                    client.scale(chance.randint(1, 5))
                elif pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(pids), chance.choice([signal.SIGKILL, signal.SIGTERM]))
                done = len(ledger.entries)
                wait_until(lambda before=done: len(ledger.entries) >= before + 20)  # type: ignore[misc]
            client.scale(3)
            assert wait_until(lambda: [one.state for one in client.status.replicas] == [ServerState.READY] * 3)
        finally:
            enough.set()
        for one in calling:
            one.result()
    ledger.check(server.state.calls, margin=20.0)
    assert set(ledger.outcomes()) <= {"ok", "server_crashed"}
    safe = [entry for entry in ledger.entries if entry.safe]
    repeated = [entry for entry in safe if entry.outcome != "ok"]
    assert len(repeated) < len(safe) / 10, "only the second loss of the same call is told"
    assert wait_until(lambda: not any(map(is_alive, server.state.pids)))


@pytest.mark.timeout(120)
def test_a_replica_that_is_stopped_delays_only_its_own_calls(chaos: Profile, tmp_path: Path) -> None:
    server, ledger = ScriptedServer("it", tmp_path), Ledger("it")
    entry = server.configuration(replicas=3, stateless=True, healthTimeout=1)
    with MCPClient.from_config("it", entry) as client:
        assert wait_until(lambda: [one.state for one in client.status.replicas] == [ServerState.READY] * 3)
        frozen = client.status.replicas[0].pid
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        stuck = ledger.submit(client, "safe_well", {}, safe=True, timeout=1.0)
        began = time.monotonic()
        for _ in range(100):
            ledger.call(client, "well", {}, safe=False, timeout=TIMEOUT)
        assert time.monotonic() - began < TIMEOUT / 2
        assert stuck is not None
        stuck.exception(TIMEOUT)
        assert wait_until(lambda: client.status.replicas[0].pid not in (frozen, None)), "it is replaced"
        assert client.state is ServerState.READY
        assert client.status.restarts == 0
    ledger.check(server.state.calls, margin=20.0)
    assert ledger.outcomes()["ok"] >= 100
    assert wait_until(lambda: not any(map(is_alive, server.state.pids)))
