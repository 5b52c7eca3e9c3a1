"""Limits that several gateways count together, in a Redis that runs."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.errors import ConfigError, MCPError
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access import shared_limits
from gaia.mcp.gateway.access.clients_file import read_clients_file
from gaia.mcp.gateway.access.limits import Admission, Limits
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.settings import ClientLimits, GatewayLimits
from gaia.mcp.gateway.access.shared_limits import SharedLimits
from gaia.mcp.gateway.operations.metrics import metrics_of
from gaia.testing import FakeServer
from tests.gateway.lines import asking
from tests.waiting import PATIENCE, wait_until

REDIS = shutil.which("redis-server")

pytestmark = [pytest.mark.skipif(REDIS is None, reason="redis-server is not installed"), pytest.mark.process]

pytest.importorskip("redis")


class Redis:
    """A Redis on a socket in a folder."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert REDIS is not None
        words = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", str(self._socket.parent)]
        self.process = subprocess.Popen([REDIS, *words], stdout=subprocess.DEVNULL)
        assert wait_until(self._socket.exists)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._socket.unlink(missing_ok=True)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    running = Redis(tmp_path)
    running.start()
    yield running
    running.stop()


class Member:
    """The limits of one gateway, and its calls."""

    def __init__(self, url: str, **limit: Any) -> None:
        loop = asyncio.get_running_loop()
        self.limits = Limits(GatewayLimits(per_client=ClientLimits(**limit), max_wait=PATIENCE), loop)
        self.shared = SharedLimits(url)
        self.limits.share(self.shared)
        self.shared.start()
        self.running: list[Admission] = []
        self.started = 0
        self.refused: list[MCPError] = []

    def call(self, *, seconds: float | None = None) -> None:
        """A call that ends by `end`, or after so many seconds."""

        def go(admission: Admission) -> None:
            self.started += 1
            self.running.append(admission)
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, self._ended, admission)

        self.limits.admit(Principal("ann"), "time", "now", go, self.refused.append)

    def _ended(self, admission: Admission) -> None:
        self.running.remove(admission)
        admission.end()

    def end(self) -> None:
        self._ended(self.running[0])


@contextlib.asynccontextmanager
async def members(url: str, count: int = 2, **limit: Any) -> AsyncIterator[list[Member]]:
    found = [Member(url, **limit) for _ in range(count)]
    try:
        yield found
    finally:
        for one in found:
            await one.shared.stop()


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def are_up(found: list[Member]) -> None:
    await until(lambda: all(one.limits.is_shared for one in found))


def shared_gates(*found: Member) -> list[shared_limits.SharedGate]:
    return [gate for one in found for gate in one.shared._gates.values()]


async def rest() -> None:
    """Time in which a call that may not begin would have begun: some exchanges with Redis."""
    await asyncio.sleep(0.4)


async def test_calls_at_once_are_those_of_all_gateways(redis: Redis) -> None:
    async with members(redis.url, concurrent=3) as (one, other):
        await are_up([one, other])
        for _ in range(5):
            one.call()
        await until(lambda: one.started == 3)
        other.call()
        await rest()
        assert (one.started, other.started) == (3, 0)
        one.end()
        await until(lambda: one.started + other.started == 4)
        for _ in range(2):
            one.end()
        await until(lambda: other.started == 1)
        await until(lambda: one.started == 5)
        assert len(one.running) + len(other.running) == 3


async def test_one_call_at_once_goes_around(redis: Redis) -> None:
    async with members(redis.url, concurrent=1) as found:
        await are_up(found)
        most = 0
        for one in found:
            for _ in range(40):
                one.call(seconds=0.005)
        async with asyncio.timeout(PATIENCE):
            while min(one.started for one in found) < 10:
                most = max(most, sum(len(one.running) for one in found))
                await asyncio.sleep(0.001)
        assert most == 1
        await until(lambda: all(one.started == 40 for one in found))


async def test_tokens_are_those_of_all_gateways(redis: Redis) -> None:
    async with members(redis.url, per_second=50, burst=10) as found:
        await are_up(found)
        began = time.monotonic()
        for one in found:
            for _ in range(100):
                one.call(seconds=0.0)
        await until(lambda: sum(one.started for one in found) >= 60)
        passed, started = time.monotonic() - began, sum(one.started for one in found)
        assert started <= 10 + 50 * passed + 1
        assert passed < 5
        assert min(one.started for one in found) > 5


async def test_what_a_gateway_does_not_use_goes_to_the_other(redis: Redis) -> None:
    async with members(redis.url, per_second=1, burst=20, concurrent=20) as (one, other):
        await are_up([one, other])
        for _ in range(2):
            one.call()
        await until(lambda: one.started == 2)
        for _ in range(18):
            other.call()
        await until(lambda: other.started == 18)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_without_redis_each_counts_by_itself_until_it_is_back(
    redis: Redis, how: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with members(redis.url, concurrent=1) as (one, other):
        await are_up([one, other])
        one.call()
        await until(lambda: one.started == 1)
        for _ in range(2):
            other.call()
        redis.signal(how)
        await until(lambda: other.started == 1)
        await until(lambda: not one.limits.is_shared and not other.limits.is_shared)
        await rest()
        assert other.started == 1, "its own limit holds"
        if how == signal.SIGSTOP:
            redis.signal(signal.SIGCONT)
        else:
            redis.stop()
            redis.start()
        await are_up([one, other])
        # Each has heard of the other's call, one more than there may be.
        await until(lambda: all(each.is_contended for each in shared_gates(one, other)))
        other.end()
        await rest()
        assert other.started == 1
        one.end()
        await until(lambda: other.started == 2)
    events = [record.event_fields["event"] for record in caplog.records]  # type: ignore[attr-defined]
    assert events.count("gateway_shared_limits_lost") == 2, "one of each gateway"
    assert events.count("gateway_shared_limits_back") == 2


async def test_the_loop_goes_on_while_redis_does_not_answer(redis: Redis) -> None:
    redis.signal(signal.SIGSTOP)
    async with members(redis.url, count=1, concurrent=1) as (one,):
        one.call()
        assert one.started == 1, "it does not wait for the first answer"
        longest, last = 0.0, time.monotonic()
        for _ in range(300):
            await asyncio.sleep(0.002)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.3
    redis.signal(signal.SIGCONT)


async def test_what_a_dead_gateway_has_leased_is_free_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "_LEASE_SECONDS", 0.6)
    async with members(redis.url, concurrent=1) as (one, other):
        await are_up([one, other])
        one.call()
        await until(lambda: one.started == 1)
        other.call()
        await asyncio.sleep(1.0)
        assert other.started == 0, "the lease is extended"
        await one.shared.stop()
        await until(lambda: other.started == 1)


async def test_many_limits_that_are_not_used_are_forgotten(redis: Redis) -> None:
    async with members(redis.url, count=1, concurrent=1) as (one,):
        await are_up([one])
        for number in range(50):
            one.limits.admit(Principal(f"c{number}"), "time", "now", lambda call: call.end(), lambda _: None)
        await until(lambda: not one.shared._gates)


def test_the_clients_file_names_it(tmp_path: Path) -> None:
    file = tmp_path / "clients.json"
    file.write_text('{"shared": "redis://:secret@host/0", "clients": {}}')
    found = read_clients_file(file)
    assert found.shared == "redis://:secret@host/0"
    assert "secret" not in repr(found)
    file.write_text('{"shared": "postgres://:secret@host/0", "clients": {}}')
    with pytest.raises(ConfigError, match="shared: not a URL such as redis://host:6379/0") as refused:
        read_clients_file(file)
    assert "secret" not in str(refused.value)


async def test_a_gateway_counts_with_others_and_says_so_in_its_metrics(redis: Redis, tmp_path: Path) -> None:
    limits = {"perClient": {"concurrent": 1}}
    clients = [tmp_path / f"{number}.json" for number in range(2)]
    for file in clients:
        file.write_text(json.dumps({"shared": redis.url, "limits": limits}))
    server = FakeServer("a", tools=[{"name": "wait"}])
    server.hang(tool="wait", times=1)
    async with (
        asking(Gateway({"a": server}, clients=clients[0])) as one,
        asking(Gateway({"a": FakeServer("a", tools=[{"name": "wait"}])}, clients=clients[1])) as other,
    ):
        checks = [lines.gateway._servers.checks for lines in (one, other)]
        await until(lambda: all(each.limits is not None and each.limits.is_shared for each in checks))
        number, _ = one.begin("tools/call", {"name": "a_wait"})
        await asyncio.to_thread(server.wait_for_call, "wait", 1)
        _, answer = other.begin("tools/call", {"name": "a_wait"})
        await rest()
        assert not answer.done()
        assert b"gaia_gateway_limits_shared 1.0" in metrics_of(other.gateway.status(), checks[1])
        one.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        assert "result" in await asyncio.wait_for(answer, PATIENCE)


def test_a_url_that_cannot_be_used_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="not a URL such as") as refused:
        SharedLimits("redis://:secret@host:port/0")
    assert "secret" not in str(refused.value)
