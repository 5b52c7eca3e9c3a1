"""Which methods there are in which era."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.lines import asking


@pytest.mark.parametrize(
    ("stateless", "method"),
    [
        (True, "ping"),
        (True, "resources/subscribe"),
        (True, "logging/setLevel"),
        (True, "initialize"),
        (False, "server/discover"),
        (False, "subscriptions/listen"),
        (True, "no/such"),
        (False, "no/such"),
    ],
)
def test_the_methods_of_the_other_era_are_not_found(stateless: bool, method: str) -> None:
    async def use() -> None:
        async with asking({}, stateless=stateless) as lines:
            error = await lines.ask(method)
            assert error["code"] in (-32601, -32600)

    asyncio.run(use())
