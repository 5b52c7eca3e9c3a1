import threading
from collections.abc import Iterator

import pytest

from gaia.mcp.cluster.lease import HostClock, Lease
from gaia.testing import FakeClock
from tests.waiting import PATIENCE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def lease(clock: FakeClock) -> Iterator[Lease]:
    lease = Lease(10.0, clock)
    yield lease
    lease.end()


class TestLease:
    def test_it_goes_on_while_it_is_renewed(self, lease: Lease, clock: FakeClock) -> None:
        for _ in range(3):
            clock.advance(9.0)
            assert lease.renew()
        assert not lease.is_over

    def test_it_cannot_be_renewed_when_it_is_over(self, lease: Lease, clock: FakeClock) -> None:
        clock.advance(10.0)
        assert not lease.renew()
        assert lease.is_over

    def test_what_is_as_old_as_the_lease_is_stale(self, lease: Lease, clock: FakeClock) -> None:
        sent = clock.monotonic()
        clock.advance(9.0)
        lease.renew()
        assert not lease.is_stale(sent)
        clock.advance(1.0)
        assert lease.is_stale(sent)
        assert not lease.is_stale(clock.monotonic())

    def test_all_is_stale_when_it_is_over(self, lease: Lease, clock: FakeClock) -> None:
        clock.advance(10.0)
        assert lease.is_stale(clock.monotonic())

    def test_its_end_is_told_once(self, lease: Lease, clock: FakeClock) -> None:
        over = threading.Semaphore(0)
        lease.watch(over.release, "lease")
        clock.advance(9.0)
        lease.renew()
        clock.advance(9.0)
        assert not over.acquire(blocking=False)
        clock.advance(1.0)
        assert over.acquire(timeout=PATIENCE)

    def test_nothing_is_told_after_its_end(self, lease: Lease, clock: FakeClock) -> None:
        told: list[str] = []
        lease.watch(lambda: told.append("over"), "lease")
        lease.end()
        lease.end()
        clock.advance(20.0)
        assert told == []


class TestHostClock:
    def test_it_shows_no_later_time_than_the_host(self) -> None:
        host, driver = FakeClock(5000.0), FakeClock(7.0)
        known = HostClock()
        reading = host.monotonic()
        # The answer takes a second.
        host.advance(1.0)
        driver.advance(1.0)
        known.heard(reading, driver.monotonic())
        assert known.at(driver.monotonic()) == 5000.0
        driver.advance(3.0)
        assert known.at(driver.monotonic()) == 5003.0
