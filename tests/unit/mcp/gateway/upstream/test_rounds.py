"""What is between two rounds: bounded, and ended when the client does not come back."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.gateway.upstream import rounds as rounds_module
from gaia.mcp.gateway.upstream.rounds import ClientSide, OnEnd, Relayed, Rounds, offers
from gaia.mcp.gateway.upstream.sealing import SealBroken
from tests.gateway.client_of_upstream import Requester

BINDING = b"server, client, request"


class Parked:
    def __init__(self, client: ClientSide) -> None:
        self.client = client
        self.cancelled: list[str] = []

    def cancel(self, reason: str) -> None:
        self.cancelled.append(reason)

    def go_on(self, params: Any, client: ClientSide, on_end: OnEnd) -> None:
        on_end(Relayed(b"{}"))


def in_loop(test: Any) -> None:
    async def use() -> None:
        test()

    asyncio.run(use())


def test_a_parked_call_is_found_by_its_state_once() -> None:
    def use() -> None:
        rounds, parked = Rounds(), Parked(Requester())
        result = orjson.loads(rounds.park(parked, {"1": {"method": "roots/list", "params": {}}}, BINDING))
        assert result["inputRequests"] == {"1": {"method": "roots/list", "params": {}}}
        params = {"requestState": orjson.Fragment(orjson.dumps(result["requestState"]))}
        assert rounds.opened(params, BINDING) is parked
        with pytest.raises(SealBroken, match="no call waits"):
            rounds.opened(params, BINDING)

    in_loop(use)


async def test_a_client_that_does_not_come_back_has_its_call_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "PARK_SECONDS", 0.0)

    rounds, parked = Rounds(), Parked(Requester())
    rounds.park(parked, {}, BINDING)
    while not parked.cancelled:
        await asyncio.sleep(0)
    assert len(rounds) == 0


def test_the_number_of_parked_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "_MAX_PARKED", 3)
    monkeypatch.setattr(rounds_module, "_MAX_PARKED_OF_CLIENT", 2)

    def use() -> None:
        rounds = Rounds()
        for identity in ("ann", "ann", "ben"):
            assert rounds.has_room(identity)
            rounds.park(Parked(Requester(identity=identity)), {}, BINDING)
            if identity == "ann" and len(rounds) == 2:
                assert not rounds.has_room("ann")
        assert not rounds.has_room("cleo")
        rounds.close()
        assert rounds.has_room("ann")

    in_loop(use)


def test_the_state_of_a_server_is_sealed_and_put_back() -> None:
    def use() -> None:
        rounds, client = Rounds(), Requester(is_stateless=True)
        result = {"resultType": "input_required", "inputRequests": {}, "requestState": "the server's own", "more": [1]}
        sealed = orjson.loads(rounds.sealed(orjson.dumps(result), client, BINDING))
        assert {**sealed, "requestState": "the server's own"} == result
        assert "own" not in sealed["requestState"]
        params: dict[str, Any] = {"name": "a", "requestState": sealed["requestState"]}
        assert rounds.opened(params, BINDING) is None
        assert params == {"name": "a", "requestState": "the server's own"}

    in_loop(use)


def test_a_server_may_only_require_what_the_client_has_declared() -> None:
    def use() -> None:
        result = {"resultType": "input_required", "inputRequests": {"x": {"method": "roots/list"}}}
        with pytest.raises(InvalidResponse, match="roots/list, which the client does not offer"):
            Rounds().sealed(orjson.dumps(result), Requester(capabilities={}), BINDING)

    in_loop(use)


FORM = {"message": "Who?", "requestedSchema": {}}
URL = {"mode": "url", "url": "https://example.com"}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "expected"),
    [
        ({}, "roots/list", {}, False),
        ({"roots": {}}, "roots/list", {}, True),
        ({"elicitation": {}}, "elicitation/create", FORM, True),
        ({"elicitation": {}}, "elicitation/create", URL, False),
        ({"elicitation": {"url": {}}}, "elicitation/create", URL, True),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, False),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation/create", {**FORM, "mode": "form"}, True),
        ({"elicitation": {"form": {}}}, "elicitation/create", {**FORM, "mode": ["form"]}, False),
        ({"elicitation": True}, "elicitation/create", FORM, False),
        ({}, "elicitation/create", FORM, False),
        ({"sampling": {}}, "sampling/createMessage", {}, True),
        ({"sampling": {}}, "sampling/createMessage", {"tools": [{}]}, False),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": [{}]}, True),
        ({}, "sampling/createMessage", {}, False),
        ({"roots": {}, "sampling": {}, "elicitation": {}}, "tools/list", {}, False),
    ],
)
def test_offers(capabilities: dict[str, Any], method: str, params: dict[str, Any], expected: bool) -> None:
    assert offers(capabilities, method, params) is expected
