"""Faults over real processes: every call ends once, and nothing is left when all is over."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gaia.mcp.transports import process
from tests.chaos.faults import AT_A_CALL, AT_A_START, tool_name
from tests.chaos.profile import Profile
from tests.chaos.system import System
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(os.name == "nt", reason="about signals and process groups"),
    pytest.mark.usefixtures("impatient"),
]

SERVERS = {"one": "handshake", "two": "stateless"}
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP", "SIGSEGV")

servers = st.sampled_from(list(SERVERS))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not leave by themselves are not waited for as long as usual."""
    monkeypatch.setattr("gaia.mcp.supervision.generation._GRACE_SECONDS", 0.2)
    monkeypatch.setattr(process, "_TERMINATE_SECONDS", 0.2)


def eras(chaos: Profile, names: list[str]) -> dict[str, str]:
    chance = random.Random(chaos.seed)
    return {name: chance.choice(["handshake", "stateless"]) for name in names}


@pytest.mark.timeout(600)
class TestAllFaultsAtOnce:
    """A server for each fault under one manager, so that none is left out; and one server that is always well.

    Which of them are of which era is left to chance.
    """

    def test_at_a_call(self, chaos: Profile, tmp_path: Path) -> None:
        system = System(tmp_path, eras(chaos, ["bystander", *AT_A_CALL]), health_timeout=1.0, max_pending=100)
        for fault in AT_A_CALL:
            for safe, blocking in ((True, False), (False, False), (False, True)):
                system.call(fault, tool_name(fault, safe=safe), safe=safe, blocking=blocking, timeout=0.5)
                system.call(fault, "well", safe=False, blocking=False, timeout=0.5)
            system.call("bystander", "well", safe=False, blocking=False, timeout=30.0)
        system.end()
        assert set(system.ledgers["bystander"].outcomes()) == {"ok"}

    def test_at_a_restart(self, chaos: Profile, tmp_path: Path) -> None:
        system = System(tmp_path, eras(chaos, ["bystander", *AT_A_START]), health_timeout=1.0, max_pending=100)
        for fault in AT_A_START:
            system.servers[fault].from_now_on(fault)
            system.call(fault, "safe_hang", safe=True, blocking=False, timeout=1.0)
            system.call(fault, "hang", safe=False, blocking=False, timeout=1.0)
            system.kill(fault)
            system.call(fault, "well", safe=False, blocking=True, timeout=0.5)
            system.call("bystander", "well", safe=False, blocking=False, timeout=30.0)
        unhealed = set(AT_A_START)

        def are_healed() -> bool:
            """Whether each has started once more. Then it is enough: those that keep crashing need processors."""
            for fault in list(unhealed):
                if system.clients[fault].status.generation >= 2:
                    system.servers[fault].from_now_on("well")
                    unhealed.remove(fault)
            return not unhealed

        assert wait_until(are_healed), unhealed
        system.end()
        assert set(system.ledgers["bystander"].outcomes()) == {"ok"}


class Machine(RuleBasedStateMachine):
    """Any schedule."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.system = System(Path(tempfile.mkdtemp(dir=folder)), SERVERS)

    @rule(
        name=servers,
        faults=st.lists(st.sampled_from(list(AT_A_CALL)), min_size=1, max_size=5),
        safe=st.booleans(),
        blocking=st.booleans(),
        timeout=st.sampled_from([0.4, 0.02, 1.0]),
    )
    def call(self, name: str, faults: list[str], safe: bool, blocking: bool, timeout: float) -> None:
        """Several calls at once."""
        for fault in faults:
            self.system.call(name, tool_name(fault, safe=safe), safe=safe, blocking=blocking, timeout=timeout)

    @rule(name=servers, count=st.sampled_from([3, 20]), blocking=st.booleans())
    def call_much(self, name: str, count: int, blocking: bool) -> None:
        """More than the queue takes, perhaps, of a server that does nothing wrong."""
        for _ in range(count):
            self.system.call(name, "well", safe=False, blocking=blocking, timeout=1.0)

    @rule(name=servers, safe=st.booleans(), size=st.sampled_from([100_000, 3_000_000]))
    def send_much(self, name: str, safe: bool, size: int) -> None:
        """More than a pipe holds, so that the server ends or stops in the middle of it."""
        tool = tool_name("well", safe=safe)
        self.system.call(name, tool, safe=safe, blocking=False, timeout=1.0, ballast=size)

    @rule(number=st.integers(0, 1000))
    def cancel(self, number: int) -> None:
        self.system.cancel(number)

    @rule(name=servers)
    def list_tools(self, name: str) -> None:
        self.system.list_tools(name)

    @rule(name=servers, number=st.sampled_from(SIGNALS))
    def kill(self, name: str, number: str) -> None:
        self.system.kill(name, getattr(signal, number))

    @rule(name=servers, fault=st.sampled_from(list(AT_A_START)), now=st.booleans())
    def start_differently(self, name: str, fault: str, now: bool) -> None:
        self.system.servers[name].from_now_on(fault)
        if now:
            self.system.kill(name)

    @rule(name=servers, really=st.sampled_from([False, False, False, True]))
    def reconnect(self, name: str, really: bool) -> None:
        """Not so often: much more happens to a server that stays."""
        if really:
            self.system.reconnect(name)

    @rule()
    def wait_for_a_thread(self) -> None:
        self.system.wait_for_a_thread()

    @rule(name=servers)
    def wait_for_a_restart(self, name: str) -> None:
        generation = self.system.clients[name].status.generation
        self.system.wait_for_generation(name, generation + 1, 0.2)

    def teardown(self) -> None:
        self.system.end()


@pytest.mark.timeout(0)
def test_any_schedule(chaos: Profile, tmp_path: Path) -> None:
    chaos.sample(lambda: Machine(tmp_path), examples=3, steps=30)
