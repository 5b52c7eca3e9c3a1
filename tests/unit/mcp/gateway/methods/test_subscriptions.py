"""Subscriptions to changes, in both eras."""

import asyncio
import json
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.methods import subscriptions
from gaia.testing import FakeServer
from tests.gateway.lines import STATELESS, asking
from tests.waiting import PATIENCE

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def one() -> str:
    """One."""
    return "1"


def two() -> str:
    """Two."""
    return "2"


async def test_only_what_was_asked_for_comes_under_the_id_of_the_request() -> None:
    server = FakeServer("a", tools=[one], prompts=[one])

    async with asking({"a": server}) as lines:
        await lines.ask("prompts/list")
        number, _ = lines.begin("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        acknowledged = await lines.wait_told("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"promptsListChanged": True}
        server.tools.add(two)
        server.prompts.add(two)
        changed = await lines.wait_told("notifications/prompts/list_changed")
        assert changed["params"] == {"_meta": {SUBSCRIPTION: number}}
        assert lines.told == []


async def test_resources_that_servers_watch_are_acknowledged_and_watched_as_long_as_any_client_wants() -> None:
    server = FakeServer("a", resources={"x:1": "", "x:2": ""})
    resources = server.resources

    async with asking({"a": server}) as lines:
        wanted = {"notifications": {"resourceSubscriptions": ["x:1"]}}
        first, _ = lines.begin("subscriptions/listen", wanted)
        second, _ = lines.begin("subscriptions/listen", wanted)
        for _ in range(2):
            told = await lines.wait_told("notifications/subscriptions/acknowledged")
            assert told["params"]["notifications"] == {"resourceSubscriptions": ["x:1"]}
        lines.send({"method": "notifications/cancelled", "params": {"requestId": first}})
        resources.update("x:2", "")
        resources.update("x:1", "")
        told = await lines.wait_told("notifications/resources/updated")
        assert told["params"] == {"uri": "x:1", "_meta": {SUBSCRIPTION: second}}
        assert lines.told == []


async def test_a_resource_that_is_named_twice_does_not_hold_up_the_acknowledgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "_ACKNOWLEDGEMENT_SECONDS", 2 * PATIENCE)

    async with asking({"a": FakeServer("a", resources={"x:1": ""})}) as lines:
        lines.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x:1", "x:1"]}})
        told = await lines.wait_told("notifications/subscriptions/acknowledged")
        assert told["params"]["notifications"] == {"resourceSubscriptions": ["x:1"]}


async def test_a_filter_that_is_none_or_names_too_many_resources_is_refused() -> None:
    async with asking({"a": FakeServer("a")}) as lines:
        params: dict[str, Any] = {"notifications": {"resourceSubscriptions": "x:1"}}
        assert (await lines.ask("subscriptions/listen", params))["code"] == -32602
        params = {"notifications": {"resourceSubscriptions": [f"x:{number}" for number in range(1_001)]}}
        assert "more than 1000 resources" in (await lines.ask("subscriptions/listen", params))["message"]


async def test_the_end_of_the_gateway_is_a_result() -> None:
    async with asking({}) as lines:
        number, answer = lines.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await lines.wait_told("notifications/subscriptions/acknowledged")
        lines.client._view.changes.dismiss()
        message = await asyncio.wait_for(answer, PATIENCE)
        assert message["result"]["_meta"] == {SUBSCRIPTION: number}


async def test_clients_of_the_handshake_era_subscribe_by_requests() -> None:
    server = FakeServer("a", resources={"x:1": ""})

    async with asking({"a": server}, stateless=False) as lines:
        assert await lines.ask("resources/subscribe", {"uri": "x:1"}) == {}
        server.resources.update("x:1", "")
        assert (await lines.wait_told("notifications/resources/updated"))["params"] == {"uri": "x:1"}
        assert await lines.ask("resources/unsubscribe", {"uri": "x:1"}) == {}
        assert await lines.ask("resources/unsubscribe", {"uri": "x:1"}) == {}
    async with asking({}, stateless=False) as lines:
        assert (await lines.ask("resources/subscribe", {"uri": "x:1"}))["code"] == -32602


async def test_a_listening_with_a_large_id_ends_with_the_others() -> None:
    async with Gateway({}) as gateway:
        written: list[bytes] = []
        client = gateway.line_client(written.append)
        for number in (2**64, 1):
            params = {"_meta": STATELESS, "notifications": {"toolsListChanged": True}}
            message = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}
            client.received(json.dumps(message).encode())
        gateway.drain()
        assert [json.loads(one)["id"] for one in written[2:]] == [2**64, 1]
