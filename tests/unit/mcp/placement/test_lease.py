"""Until when the owners of a host want its server."""

import pytest

from gaia.mcp.placement.lease import FIRST_SECONDS, Beat, Owners, fingerprints


def test_a_host_waits_for_its_first_owner() -> None:
    owners = Owners(10.0, now=0.0)
    owners.hear("a", Beat(), now=1.0)
    assert not owners.have_left(FIRST_SECONDS - 1)
    assert owners.have_left(FIRST_SECONDS)


def test_each_beat_extends_the_lease() -> None:
    owners = Owners(10.0, now=0.0)
    owners.hear("a", Beat(clock=5.0, since=1.0), now=7.0)
    assert owners.count(7.0) == 1
    assert not owners.have_left(15.9)
    assert owners.have_left(16.0), "the lease counts from when the beat was sent"


def test_a_beat_that_was_delivered_late_extends_nothing() -> None:
    owners = Owners(10.0, now=0.0)
    owners.hear("a", Beat(clock=5.0), now=6.0)
    owners.hear("a", Beat(clock=5.0, since=1.0), now=16.5)
    assert owners.have_left(16.5)


def test_the_host_lives_as_long_as_its_last_owner() -> None:
    owners = Owners(10.0, now=0.0)
    owners.hear("a", Beat(clock=0.0), now=0.0)
    owners.hear("b", Beat(clock=5.0), now=5.0)
    owners.leave("unknown")
    assert not owners.have_left(14.0)
    owners.leave("b")
    assert not owners.have_left(9.0)
    owners.leave("a")
    assert owners.have_left(9.0)


@pytest.mark.parametrize("value", ["secret", ["--key", "secret"], {"KEY": "secret"}])
def test_fingerprints_differ_with_the_value_and_do_not_tell_it(value: object) -> None:
    first = fingerprints({"env": value}, "token")
    assert first == fingerprints({"env": value}, "token")
    assert first != fingerprints({"env": [value]}, "token")
    assert first != fingerprints({"env": value}, "another")
    assert "secret" not in str(first)
