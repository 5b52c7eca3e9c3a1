"""Whose request it is that came through proxies."""

from __future__ import annotations

import pytest

from gaia.serving.guards import ClientAddress

PROXIES = ClientAddress(["10.0.0.0/8", "127.0.0.1", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.1.2.3", True),
        ("127.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("2001:db8::1", True),
        (None, False),
        ("192.0.2.1", False),
        ("127.0.0.2", False),
        ("", False),
    ],
)
def test_proxies_are_trusted_by_address_and_network(peer: str | None, trusted: bool) -> None:
    assert PROXIES.trusts(peer) is trusted
    assert not ClientAddress([]).trusts(peer)


@pytest.mark.parametrize(
    ("given", "client"),
    [
        ([], "10.0.0.1"),
        (["203.0.113.7"], "203.0.113.7"),
        # Whatever the client itself has written stands before its address.
        (["10.0.0.2, 198.51.100.9, 203.0.113.7"], "203.0.113.7"),
        (["203.0.113.7, 10.0.0.2,10.0.0.3"], "203.0.113.7"),
        (["198.51.100.9", "203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (["203.0.113.7:4711"], "203.0.113.7"),
        (["[2001:db9::7]:4711"], "2001:db9::7"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        (["10.0.0.9"], "10.0.0.9"),
        (["203.0.113.7, unknown"], "10.0.0.1"),
        (["203.0.113.7, _hidden, 10.0.0.2"], "10.0.0.2"),
        (["\xff\xfe"], "10.0.0.1"),
        ([""], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_that_is_no_trusted_proxy(given: list[str], client: str) -> None:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", each.encode("latin-1")) for each in given)]
    assert PROXIES.behind("10.0.0.1", headers) == client


@pytest.mark.parametrize("given", ["", "proxy.example", "10.0.0.0/33", "10.0.0.1:80"])
def test_what_is_no_network_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        ClientAddress([given])
