"""How much one client may have of what all clients share."""

from __future__ import annotations

import pytest

from gaia.mcp.gateway.access.checks import LargerThanShare, OverShare, Refusals, Shares
from gaia.mcp.gateway.access.limit_settings import GatewayLimits


@pytest.fixture
def shares() -> Shares:
    made = Shares(Refusals())
    made.settings = GatewayLimits(streams_per_client=2, body_bytes_per_client=100, unread_bytes_per_client=100)
    return made


def test_a_client_has_its_share_and_no_more(shares: Shares, caplog: pytest.LogCaptureFixture) -> None:
    releases = [shares.take_stream("ann", None) for _ in range(2)]
    for _ in range(2):
        with pytest.raises(OverShare, match=r"client 'ann' has 2 streams, .* raise 'streamsPerClient'"):
            shares.take_stream("ann", "10.0.0.1")
    shares.take_stream("bob", None)
    assert shares._refusals.counts["over_limit"] == 2
    assert caplog.text.count("gateway_access_refused reason='over_limit'") == 1, "one line for many in a minute"
    for _ in range(3):
        releases[0]()
    assert shares.used("ann", "streams") == 1, "it is given back once"
    shares.take_stream("ann", None)


def test_a_body_larger_than_the_whole_share_says_that_waiting_does_not_help(shares: Shares) -> None:
    with pytest.raises(LargerThanShare, match=r"up to 101 bytes, .* may send 100 at once; .* 'bodyBytesPerClient'"):
        shares.take_body("ann", 101, None)
    assert shares._refusals.counts["over_limit"] == 1
    assert shares.used("ann", "bytes of open requests") == 0


def test_bodies_count_by_their_size(shares: Shares) -> None:
    release = shares.take_body("ann", 60, None)
    shares.take_body("ann", 40, None)
    with pytest.raises(OverShare, match=r"has 100 bytes of open requests, .* 'bodyBytesPerClient'"):
        shares.take_body("ann", 1, None)
    release()
    shares.take_body("ann", 60, None)


def test_a_client_that_does_not_read_gets_no_more(shares: Shares) -> None:
    shares.check_unread("ann", 100, None)
    with pytest.raises(OverShare, match=r"has 101 bytes of responses that it does not read, .* 'unreadBytesPerClient'"):
        shares.check_unread("ann", 101, None)


def test_a_share_can_be_changed_while_it_is_used(shares: Shares) -> None:
    shares.take_stream("ann", None)
    shares.settings = GatewayLimits(streams_per_client=1)
    with pytest.raises(OverShare):
        shares.take_stream("ann", None)
