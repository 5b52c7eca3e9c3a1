"""Completion goes to the server of the prompt or the template."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.lines import asking


def test_references_are_checked() -> None:
    async def use() -> None:
        async with asking({}) as lines:
            assert (await lines.ask("completion/complete", {"ref": {"type": "ref/other"}}))["code"] == -32602
            unknown = {"type": "ref/prompt", "name": "no_one"}
            assert "Unknown prompt" in (await lines.ask("completion/complete", {"ref": unknown}))["message"]
            unknown = {"type": "ref/resource", "uri": "x:{y}?token=secret"}
            message = (await lines.ask("completion/complete", {"ref": unknown}))["message"]
            assert message == "Unknown resource template: x:{y}"

    asyncio.run(use())


@pytest.mark.slow
def test_the_server_knows_the_prompt_by_its_own_name(feature_server: dict[str, Any]) -> None:
    async def use() -> None:
        async with asking({"f": feature_server}) as lines:
            (name, *_) = [prompt["name"] for prompt in (await lines.ask("prompts/list"))["prompts"]]
            assert name.startswith("f_")
            argument = {"name": "language", "value": ""}
            params = {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}
            assert "completion" in await lines.ask("completion/complete", params)

    asyncio.run(use())
