"""``logging/setLevel``."""

from __future__ import annotations

import asyncio

from tests.gateway.lines import asking


def test_only_the_words_of_the_protocol_are_levels() -> None:
    async def use() -> None:
        async with asking({}, stateless=False) as lines:
            assert await lines.ask("logging/setLevel", {"level": "warning"}) == {}
            assert (await lines.ask("logging/setLevel", {"level": "loud"}))["code"] == -32602

    asyncio.run(use())
