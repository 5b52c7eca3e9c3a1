"""Requests and their options, which many threads share."""

from __future__ import annotations

import msgspec
import pytest

from gaia.mcp.requests.exchange import CallOptions, RequestExchange


def test_a_request_leaves_to_the_client_what_it_does_not_say() -> None:
    wanted = RequestExchange("ping")
    options = wanted.options
    assert (options.timeout, options.on_progress, options.reset_timeout_on_progress) == (None, None, None)
    assert (options.max_timeout, wanted.max_timeout) == (None, None)


def test_a_request_is_not_written_twice_unless_that_is_said_to_be_harmless() -> None:
    assert not RequestExchange("tools/call", {"name": "pay"}, tool="pay").repeatable


@pytest.mark.parametrize(("shared", "field"), [(CallOptions(), "timeout")])
def test_nothing_changes_on_the_way_to_the_server(shared: msgspec.Struct, field: str) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        setattr(shared, field, None)
