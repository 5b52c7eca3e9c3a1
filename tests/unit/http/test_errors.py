"""The errors of the HTTP client, as those that use it tell them apart."""

from __future__ import annotations

import pytest

from gaia.http.errors import ConnectFailed, HttpClientError, Interrupted, ProtocolBroken, TimedOut, TooLong


@pytest.mark.parametrize("kind", [ConnectFailed, ProtocolBroken, TimedOut, TooLong])
def test_all_that_a_server_or_a_network_does_is_one_kind(kind: type[Exception]) -> None:
    assert issubclass(kind, HttpClientError)
    assert issubclass(kind, OSError)
    assert str(kind("what went wrong")) == "what went wrong"


def test_giving_up_is_no_failure_of_the_server() -> None:
    assert not issubclass(Interrupted, OSError)
