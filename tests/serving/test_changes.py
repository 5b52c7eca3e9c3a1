"""Clients hear of changes: by subscription to a resource, by their session, or by listening."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client

from tests.serving.served import Served, http_server
from tests.serving.test_clients import on_stdio

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(starts_programs: None) -> Iterator[Served]:
    with http_server("notes_agent:NotesAgent") as server:
        yield server


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_of_a_session_is_told_that_a_list_changed(transport: str, served: Served) -> None:
    async def session() -> None:
        heard = asyncio.Event()

        async def listen(message: Any) -> None:
            if getattr(message, "method", None) == "notifications/resources/list_changed":
                heard.set()

        target = on_stdio() if transport == "stdio" else served.url
        async with Client(target, mode="legacy", message_handler=listen) as client:
            await client.call_tool("write-note", {"title": "a", "text": "b"})
            await asyncio.wait_for(heard.wait(), 20)

    asyncio.run(session())


# The official client says that later revisions have another way.
@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_client_hears_of_the_resources_it_has_subscribed_to_and_of_no_others(served: Served) -> None:
    async def session() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def listen(message: Any) -> None:
            if getattr(message, "method", None) == "notifications/resources/updated":
                heard.put_nowait(message.params.uri)

        async with Client(served.url, mode="legacy", message_handler=listen) as client:
            for title in "ab":
                await client.call_tool("write-note", {"title": title, "text": "1"})
            await client.subscribe_resource("note:///b")
            for title in "ab":
                await client.call_tool("write-note", {"title": title, "text": "2"})
            assert await asyncio.wait_for(heard.get(), 20) == "note:///b"
            await client.unsubscribe_resource("note:///b")
            await client.subscribe_resource("note:///a")
            for title in "ba":
                await client.call_tool("write-note", {"title": title, "text": "3"})
            assert await asyncio.wait_for(heard.get(), 20) == "note:///a"
            assert heard.empty()

    asyncio.run(session())


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_that_listens_is_told_too(transport: str, served: Served) -> None:
    async def session() -> None:
        target = on_stdio() if transport == "stdio" else served.url
        async with Client(target, mode="auto") as client, client.listen(resources_list_changed=True) as events:
            await client.call_tool("write-note", {"title": "a", "text": "b"})
            event = await asyncio.wait_for(anext(aiter(events)), 20)
            assert type(event).__name__ == "ResourcesListChanged"

    asyncio.run(session())
