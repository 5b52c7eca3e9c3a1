"""Deadlines in terms of a gateway's clock."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.protocol.remote_deadlines import GatewayClock, RemoteClock


def sent(remote: RemoteClock, deadline: float) -> dict[bytes, bytes]:
    """The header of a request, as the gateway reads it."""
    name, _, value = remote.header(deadline).removesuffix(b"\r\n").partition(b": ")
    return {name.lower(): value}


def answer(gateway: GatewayClock, now: float) -> dict[bytes, bytes]:
    return dict([gateway.header(now)])


seconds = st.floats(0.0, 10.0)


@given(ahead=st.floats(-1e6, 1e6), returns=st.lists(seconds, min_size=1), timeout=seconds)
def test_a_deadline_is_never_late_and_early_at_most_by_the_fastest_way_back(
    ahead: float, returns: list[float], timeout: float
) -> None:
    gateway, remote, now = GatewayClock(), RemoteClock(), 2e6
    for took in returns:
        remote.note(answer(gateway, now + ahead), now + took)
    deadline = gateway.deadline(sent(remote, now + timeout), 0.0)
    assert deadline is not None
    exact = now + timeout + ahead
    assert exact - min(returns) - 0.003 <= deadline <= exact + 1e-6


def test_clocks_that_come_apart_are_compared_again() -> None:
    gateway, remote = GatewayClock(), RemoteClock()
    remote.note(answer(gateway, 100.0), 100.0)
    # The far clock is slower by a ten-thousandth, and an answer needs two milliseconds for its way.
    for number in range(1, 1000):
        now = 100.0 + number * 10.0
        remote.note(answer(gateway, 100.0 + number * 9.999), now + 0.002)
    deadline = gateway.deadline(sent(remote, 10_090.0), 0.0)
    assert deadline is not None
    assert deadline <= 100.0 + 999 * 9.999


def test_another_gateway_ignores_the_deadline_and_its_clock_replaces_the_one_before() -> None:
    first, second, remote = GatewayClock(), GatewayClock(), RemoteClock()
    remote.note(answer(first, 5.0), 1.0)
    assert second.deadline(sent(remote, 2.0), 0.0) is None
    remote.note(answer(second, 1.0), 1.0)
    assert first.deadline(sent(remote, 2.0), 0.0) is None
    assert second.deadline(sent(remote, 2.0), 0.0) == 2.0


def test_without_a_clock_or_a_deadline_nothing_is_sent() -> None:
    remote = RemoteClock()
    assert remote.header(1.0) == b""
    remote.note({b"date": b"now"}, 1.0)
    assert remote.header(1.0) == b""
    remote.note(answer(GatewayClock(), 1.0), 1.0)
    assert remote.header(math.inf) == b""
    assert remote.header(-100.0).endswith(b" 0\r\n")


@pytest.mark.parametrize(
    "value", [b"", b"id", b"id x", b"id 1 2", b"i\rd 1", b"a,b 1", b"id -1", b" 1", b"i" * 65 + b" 1"]
)
def test_a_clock_that_cannot_be_one_changes_nothing(value: bytes) -> None:
    remote = RemoteClock()
    remote.note({b"gaia-clock": value}, 1.0)
    assert remote.header(1.0) == b""


@pytest.mark.parametrize("value", [b"", b"1", b"%b", b"%b x", b"%b -1", b"%b 1 2", b"%b 99999999999999999999"])
def test_a_deadline_that_cannot_be_one_is_none(value: bytes) -> None:
    gateway = GatewayClock()
    identifier = gateway.header(0.0)[1].split()[0]
    assert gateway.deadline({b"gaia-deadline": value.replace(b"%b", identifier)}, 0.0) is None
    assert gateway.deadline({}, 0.0) is None


def test_the_first_request_tells_how_long_the_client_waits() -> None:
    gateway, remote = GatewayClock(), RemoteClock()
    name, _, value = remote.header(12.5, 10.0).strip().partition(b": ")
    assert gateway.deadline({name.lower(): value}, 7.0) == 9.5
    assert gateway.deadline({b"gaia-timeout": b"x"}, 7.0) is None
    remote.note(answer(gateway, 5.0), 10.0)
    assert gateway.deadline(sent(remote, 12.5), 7.0) == 7.5
