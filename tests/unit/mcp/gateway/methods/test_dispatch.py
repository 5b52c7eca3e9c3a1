"""Which methods there are in which era."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gaia.mcp.gateway import Gateway
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


def test_lists_count_for_the_limits_of_their_client(tmp_path: Path) -> None:
    file = tmp_path / "clients.json"
    limits = {"perClient": {"perSecond": 0.001, "burst": 2}, "perServer": {"*": {"perSecond": 0.001}}, "maxWait": 0.01}
    file.write_text(json.dumps({"limits": limits}))

    async def use() -> None:
        async with asking(Gateway({}, clients=file), stateless=True) as lines:
            answers = [await lines.ask(method) for method in ("tools/list", "prompts/list", "resources/list")]
            assert ["tools" in answers[0], "prompts" in answers[1]] == [True, True]
            assert "because of a limit: client 'anonymous': 0.001 per second" in answers[2]["message"]

    asyncio.run(use())
