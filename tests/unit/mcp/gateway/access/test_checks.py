"""Counts, refused attempts and shares of clients."""

import json
from pathlib import Path

import pytest

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.checks import BOUNDS, CallCounts, Checks, LargerThanShare, OverShare, Refusals, Shares
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.settings import GatewayLimits
from tests.gateway.fake_loop import FakeLoop


def test_the_clients_of_an_issuer_are_one() -> None:
    counts = CallCounts()
    for client in (Principal("corp/ann"), Principal("corp/bob"), Principal("ci"), None):
        counts.add(client, "it", "ok", 0.0)

    assert counts.ended == {("corp", "it", "ok"): 2, ("ci", "it", "ok"): 1, ("", "it", "ok"): 1}


def test_durations_are_counted_up_to_each_bound() -> None:
    counts = CallCounts()
    for seconds in (0.0, 0.02, 1000.0):
        counts.add(None, "it", "ok", seconds)
    (found, total) = counts.durations()["", "it"]

    assert dict(zip(BOUNDS, found, strict=False)) == {bound: 1 if bound < 0.02 else 2 for bound in BOUNDS}
    assert (found[-1], total) == (3, 1000.02)


def test_one_of_a_kind_is_logged_and_recorded_and_all_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals()
    refusals.audit = audit = Audit(AuditFile(tmp_path / "audit.jsonl"), FakeLoop(), "gw1")
    try:
        for _ in range(100):
            refusals.note("wrong_token", "The token is not known here", "POST /mcp", "10.0.0.7")
        refusals.note("foreign_session", "There is no such session", "POST", "10.0.0.7", "ann")
    finally:
        audit.close()
    assert refusals.counts == {"wrong_token": 100, "foreign_session": 1}
    first, second = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (first["gateway"], first["client"], first["address"], first["outcome"]) == (
        "gw1",
        "unknown",
        "10.0.0.7",
        "wrong_token",
    )
    assert (second["client"], second["outcome"], second["delivery"]) == ("ann", "foreign_session", "not_sent")
    assert len(first["trace"]) == 32
    assert caplog.text.count("gateway_access_refused") == 2


@pytest.mark.parametrize("reason", ["no_token", "unknown_session"])
def test_what_happens_without_an_attempt_is_only_counted(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.note(reason, "why", "POST /mcp", None)  # type: ignore[arg-type]  # one of them
    assert sum(refusals.counts.values()) == 1
    assert caplog.text == ""


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
    assert shares._used["ann", "streams"] == 1, "it is given back once"
    shares.take_stream("ann", None)


def test_a_body_larger_than_the_whole_share_says_that_waiting_does_not_help(shares: Shares) -> None:
    with pytest.raises(LargerThanShare, match=r"up to 101 bytes, .* may send 100 at once; .* 'bodyBytesPerClient'"):
        shares.take_body("ann", 101, None)
    assert shares._refusals.counts["over_limit"] == 1
    assert not shares._used


def test_bodies_count_by_their_size(shares: Shares) -> None:
    release = shares.take_body("ann", 60, None)
    shares.take_body("ann", 40, None)
    with pytest.raises(OverShare, match=r"has 100 bytes of open requests, .* 'bodyBytesPerClient'"):
        shares.take_body("ann", 1, None)
    release()
    shares.take_body("ann", 60, None)


def test_a_client_that_does_not_read_gets_no_more_and_a_share_can_be_changed_while_it_is_used(shares: Shares) -> None:
    shares.check_unread("ann", 100, None)
    with pytest.raises(OverShare, match=r"has 101 bytes of responses that it does not read, .* 'unreadBytesPerClient'"):
        shares.check_unread("ann", 101, None)
    shares.take_stream("ann", None)
    shares.settings = GatewayLimits(streams_per_client=1)
    with pytest.raises(OverShare):
        shares.take_stream("ann", None)
    assert (Checks().limits, Checks().audit) == (None, None), "there are none by default"
