"""Which methods there are in which era."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.lines import asking


@pytest.mark.parametrize(
    ("stateless", "methods"),
    [
        (True, ["ping", "resources/subscribe", "logging/setLevel", "initialize", "no/such"]),
        (False, ["server/discover", "subscriptions/listen", "no/such"]),
    ],
)
def test_the_methods_of_the_other_era_are_not_found(stateless: bool, methods: list[str]) -> None:
    async def use() -> None:
        async with asking({}, stateless=stateless) as lines:
            for method in methods:
                error = await lines.ask(method)
                assert error["code"] in (-32601, -32600), method

    asyncio.run(use())
