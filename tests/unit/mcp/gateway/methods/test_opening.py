"""The first requests of a client."""

from __future__ import annotations

import pytest

from gaia.mcp.gateway import Gateway
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING, Lines, asking


async def test_a_client_of_the_handshake_era_gets_the_revision_that_it_asks_for() -> None:
    async with Gateway({}) as gateway:
        for asked, answered in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
            lines = Lines(gateway, stateless=False)
            result = await lines.ask("initialize", {**OPENING, "protocolVersion": asked})
            assert result["protocolVersion"] == answered


async def test_discovery_names_the_revisions_of_both_eras() -> None:
    async with asking({"a": FakeServer("a", instructions="Be kind.")}) as lines:
        result = await lines.ask("server/discover")
        assert {"2026-07-28", "2025-11-25"} <= set(result["supportedVersions"])
        assert result["instructions"] == "## a\n\nBe kind."
        assert result["capabilities"]["tools"] == {"listChanged": True}


async def test_a_server_that_was_never_ready_may_have_prompts_and_resources() -> None:
    broken = FakeServer("broken")
    broken.fail_starts(times=1_000)

    async with asking({"broken": broken}) as lines:
        assert {"prompts", "resources"} <= set((await lines.ask("server/discover"))["capabilities"])
    async with asking({}) as lines:
        assert set((await lines.ask("server/discover"))["capabilities"]) == {"tools"}


@pytest.mark.parametrize("key", ["capabilities", "clientInfo"])
async def test_what_a_client_says_of_itself_has_a_bound(key: str) -> None:
    async with Gateway({}) as gateway:
        lines = Lines(gateway, stateless=False)
        error = await lines.ask("initialize", {**OPENING, key: {"x": "x" * 70_000}})
        assert error["message"] == f"{key}: longer than 65536 bytes"


async def test_of_the_program_of_a_client_the_beginning_is_kept() -> None:
    async with Gateway({}) as gateway:
        lines = Lines(gateway, stateless=False)
        info = {"name": "x" * 60_000, "version": 1, "title": "y"}
        await lines.ask("initialize", {**OPENING, "clientInfo": info})
        (session,) = gateway.status().sessions
        assert session.program == "x" * 100


async def test_a_session_whose_opening_has_failed_is_none() -> None:
    async with Gateway({}) as gateway:
        lines = Lines(gateway, stateless=False)
        assert (await lines.ask("initialize", {**OPENING, "capabilities": 1}))["code"] == -32602
        assert gateway.status().session_count == 0
        assert (await lines.open())["protocolVersion"] == "2025-11-25", "the client may try again"


async def test_only_the_words_of_the_protocol_are_levels() -> None:
    async with asking({}, stateless=False) as lines:
        assert await lines.ask("logging/setLevel", {"level": "warning"}) == {}
        assert (await lines.ask("logging/setLevel", {"level": "loud"}))["code"] == -32602
