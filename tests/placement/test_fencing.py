"""Hosts and programs that stop for a while, die, or cannot reach each other: at most one server takes calls."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import gaia
from gaia.mcp.client import MCPClient
from gaia.mcp.placement.engine import Ready
from tests.placement.conftest import LEASE, Start, all_of, are_gone, placed, processes_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]

SERVERS = Path(__file__).parents[1] / "servers"
ROOT = Path(__file__).parents[2]


def with_ledger(ledger: Path, **placement: Any) -> dict[str, Any]:
    """A server that writes each call into the file before it does anything else."""
    entry = {
        "command": sys.executable,
        "args": ["-P", str(SERVERS / "ledger_server.py"), str(ledger)],
        "env": {"PYTHONPATH": os.pathsep.join(map(str, (Path(gaia.__file__).parents[1], ROOT)))},
    }
    return placed(entry, **placement)


class Callers:
    """Threads that call `record` with another text each time, and note what became of each call."""

    def __init__(self, client: MCPClient, ledger: Path) -> None:
        self._client = client
        self._ledger = ledger
        self._ends = threading.Event()
        self.outcomes: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _call(self, number: int) -> None:
        for count in range(1_000_000):
            if self._ends.is_set():
                return
            text = f"{number}-{count}"
            result = self._client.call_tool("record", {"text": text}, timeout=20)
            self.outcomes[text] = str(result.get("delivery", "answered"))

    def answered(self) -> int:
        return sum(outcome == "answered" for outcome in list(self.outcomes.values()))

    def goes_on(self, seconds: float = 120.0) -> bool:
        """Whether calls are answered, from now on."""
        before = self.answered()
        return wait_until(lambda: self.answered() > before + 4, seconds)

    def end(self) -> None:
        """Check that each call that was answered was made once, and no other more than once."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        made = Counter(self._ledger.read_text().split())
        assert [text for text, times in made.items() if times > 1] == []
        assert [text for text, outcome in self.outcomes.items() if outcome == "answered" and text not in made] == []
        assert [text for text, outcome in self.outcomes.items() if outcome == "not_sent" and text in made] == []


@pytest.fixture
def calling(connect: Connect, tmp_path: Path) -> Iterator[tuple[MCPClient, Callers]]:
    ledger = tmp_path / "ledger"
    client = connect(with_ledger(ledger))
    callers = Callers(client, ledger)
    try:
        assert callers.goes_on()
        yield client, callers
        assert callers.goes_on()
    finally:
        callers.end()


def test_a_host_that_is_stopped_is_replaced(calling: tuple[MCPClient, Callers]) -> None:
    client, callers = calling
    processes = processes_of(client)
    os.kill(processes[0].pid, signal.SIGSTOP)
    assert wait_until(lambda: not client.is_connected())
    assert are_gone(processes)
    assert callers.goes_on()


def test_a_host_that_is_stopped_for_less_than_the_lease_goes_on(calling: tuple[MCPClient, Callers]) -> None:
    client, callers = calling
    processes = processes_of(client)
    os.kill(processes[0].pid, signal.SIGSTOP)
    threading.Event().wait(LEASE / 4)
    os.kill(processes[0].pid, signal.SIGCONT)
    assert callers.goes_on()
    assert processes_of(client)[0].pid == processes[0].pid


def test_a_host_that_is_killed_is_replaced(calling: tuple[MCPClient, Callers]) -> None:
    client, _ = calling
    processes = processes_of(client)
    processes[0].kill()
    assert are_gone(processes)


def test_a_server_that_is_killed_is_restarted_by_its_host(calling: tuple[MCPClient, Callers]) -> None:
    client, callers = calling
    host = processes_of(client)[0].pid
    assert client.status.pid is not None
    psutil.Process(client.status.pid).kill()
    assert callers.goes_on()
    assert processes_of(client)[0].pid == host


def test_a_program_that_was_stopped_gets_another_host(program: Start) -> None:
    one = program(placed())
    host, is_error = one.call()
    assert not is_error
    processes = all_of(host)
    os.kill(one.process.pid, signal.SIGSTOP)
    assert are_gone(processes), "the lease is over"
    began = time.monotonic()
    os.kill(one.process.pid, signal.SIGCONT)
    other, is_error = one.call()
    assert time.monotonic() - began < 3
    assert other != host
    assert not is_error


def test_a_program_that_is_killed_leaves_nothing(program: Start) -> None:
    one = program(placed())
    processes = all_of(one.call()[0])
    one.process.kill()
    assert are_gone(processes)


class Proxy:
    """Passes bytes on to a port, while `passes` is set."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.passes = threading.Event()
        self.passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(near)
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._open.append(far)
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._pass, args=pair))
                self._threads[-1].start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.passes.wait()
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.passes.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Proxy]]:
    """The proxies between this program and the hosts that it starts, all of which share one cable."""
    made: list[Proxy] = []
    real = Ready.address

    def behind_proxy(*arguments: Any) -> Any:
        address = real(*arguments)
        made.append(Proxy(int(address.url.rpartition(":")[2])))
        if len(made) > 1 and not made[0].passes.is_set():
            made[-1].passes.clear()
        return msgspec.structs.replace(address, url=f"http://127.0.0.1:{made[-1].port}")

    monkeypatch.setattr(Ready, "address", behind_proxy)
    yield made
    for proxy in made:
        proxy.close()


def test_a_server_that_cannot_be_reached_is_back_as_soon_as_it_can(
    connect: Connect, tmp_path: Path, proxies: list[Proxy]
) -> None:
    ledger = tmp_path / "ledger"
    client = connect(with_ledger(ledger))
    callers = Callers(client, ledger)
    try:
        assert callers.goes_on()
        processes = processes_of(client)
        for proxy in proxies:
            proxy.passes.clear()
        assert wait_until(lambda: not client.is_connected())
        assert are_gone(processes)
        threading.Event().wait(LEASE)
        began = time.monotonic()
        for proxy in list(proxies):
            proxy.passes.set()
        assert callers.goes_on()
        assert time.monotonic() - began < 1
    finally:
        callers.end()
        client.disconnect()
