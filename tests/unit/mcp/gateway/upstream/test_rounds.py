"""Calls between two rounds: bounded, and ended without their client. States are sealed, and bound to a request."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import ConfigError, InvalidResponse
from gaia.mcp.gateway.upstream import rounds as rounds_module
from gaia.mcp.gateway.upstream.rounds import ClientSide, OnEnd, Relayed, Rounds, offers
from gaia.mcp.gateway.upstream.sealing import SealBroken, StateSeal, binding_of, read_state_key
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


async def test_a_parked_call_is_found_by_its_state_once() -> None:
    rounds, parked = Rounds(), Parked(Requester())
    result = orjson.loads(rounds.park(parked, {"1": {"method": "roots/list", "params": {}}}, BINDING))
    assert result["inputRequests"] == {"1": {"method": "roots/list", "params": {}}}
    params = {"requestState": orjson.Fragment(orjson.dumps(result["requestState"]))}
    assert rounds.opened(params, BINDING) is parked
    with pytest.raises(SealBroken, match="no call waits"):
        rounds.opened(params, BINDING)


async def test_a_client_that_does_not_come_back_has_its_call_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "PARK_SECONDS", 0.0)

    rounds, parked = Rounds(), Parked(Requester())
    rounds.park(parked, {}, BINDING)
    while not parked.cancelled:
        await asyncio.sleep(0)
    assert len(rounds) == 0


async def test_the_number_of_parked_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "_MAX_PARKED", 3)
    monkeypatch.setattr(rounds_module, "_MAX_PARKED_OF_CLIENT", 2)

    rounds = Rounds()
    for identity in ("ann", "ann", "ben"):
        assert rounds.has_room(identity)
        rounds.park(Parked(Requester(identity=identity)), {}, BINDING)
        if identity == "ann" and len(rounds) == 2:
            assert not rounds.has_room("ann")
    assert not rounds.has_room("cleo")
    rounds.close()
    assert rounds.has_room("ann")


async def test_the_state_of_a_server_is_sealed_and_put_back() -> None:
    rounds, client = Rounds(), Requester(is_stateless=True)
    result = {"resultType": "input_required", "inputRequests": {}, "requestState": "the server's own", "more": [1]}
    sealed = orjson.loads(rounds.sealed(orjson.dumps(result), client, BINDING))
    assert {**sealed, "requestState": "the server's own"} == result
    assert "own" not in sealed["requestState"]
    params: dict[str, Any] = {"name": "a", "requestState": sealed["requestState"]}
    assert rounds.opened(params, BINDING) is None
    assert params == {"name": "a", "requestState": "the server's own"}


async def test_a_server_may_only_require_what_the_client_has_declared() -> None:
    result = {"resultType": "input_required", "inputRequests": {"x": {"method": "roots/list"}}}
    with pytest.raises(InvalidResponse, match="roots/list, which the client does not offer"):
        Rounds().sealed(orjson.dumps(result), Requester(capabilities={}), BINDING)


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


SEALED_FOR = b"what it belongs to"


def test_what_is_sealed_is_opened_and_cannot_be_read_and_another_binding_or_key_opens_nothing() -> None:
    seal = StateSeal()
    state = seal.seal({"state": "secret-state"}, SEALED_FOR)
    assert seal.open(state, SEALED_FOR) == {"state": "secret-state"}
    assert "secret" not in state
    assert state.isascii()
    assert state != seal.seal({"state": "secret-state"}, SEALED_FOR), "no two are alike"
    with pytest.raises(SealBroken):
        seal.open(state, b"something else")
    with pytest.raises(SealBroken):
        StateSeal().open(state, SEALED_FOR)
    with pytest.raises(ValueError, match="32 bytes"):
        StateSeal(b"short")


def test_a_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    seal, now = StateSeal(), time.time()
    state = seal.seal({"state": 1}, SEALED_FOR)
    monkeypatch.setattr(time, "time", lambda: now + 901)
    with pytest.raises(SealBroken, match="expired"):
        seal.open(state, SEALED_FOR)


@given(st.one_of(st.none(), st.integers(), st.text(), st.binary().map(lambda data: data.hex())))
def test_nothing_else_is_a_state(state: object) -> None:
    with pytest.raises(SealBroken):
        StateSeal().open(state, SEALED_FOR)


def test_a_binding_is_the_same_for_the_same_request() -> None:
    def binding(
        params: dict[str, object], server: str = "files", client: str = "ann", method: str = "tools/call"
    ) -> bytes:
        return binding_of(server, client, method, params)

    params: dict[str, object] = {"name": "read", "arguments": {"a": 1, "b": "é"}}
    as_json = {"name": "read", "arguments": orjson.Fragment(b'{ "b": "\\u00e9", "a": 1 }')}
    rounds = {**params, "inputResponses": {"x": {}}, "requestState": "s", "_meta": {"progressToken": 2}}
    assert binding(params) == binding(as_json) == binding(rounds)
    others = [
        binding({**params, "arguments": {"a": 2, "b": "é"}}),
        binding(params, server="other"),
        binding(params, client="ben"),
        binding(params, method="prompts/get"),
    ]
    assert binding(params) not in others


@pytest.mark.parametrize("arguments", [b'{"a":1e999}', b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"])
def test_what_cannot_be_decoded_is_bound_as_it_is(arguments: bytes) -> None:
    bindings = [
        binding_of("files", "ann", "tools/call", {"name": name, "arguments": orjson.Fragment(arguments)})
        for name in ("read", "read", "write")
    ]
    assert bindings[0] == bindings[1] != bindings[2]


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "state.key"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_gateways_that_share_a_key_open_what_one_of_them_has_sealed(tmp_path: Path) -> None:
    first, second = (StateSeal(read_state_key(key_file(tmp_path, "k" * 44 + end))) for end in ("", "\n"))
    assert second.open(first.seal({"state": 1}, b"x"), b"x") == {"state": 1}


def test_of_two_keys_the_first_one_seals_and_both_open(tmp_path: Path) -> None:
    old, new = "o" * 44, "n" * 44
    lines = {"before": f"{old}\n{new}", "after": f"{new}\r\n\n{old}\n", "old": old, "new": new}
    seals = {name: StateSeal(read_state_key(key_file(tmp_path, text))) for name, text in lines.items()}
    opened_by = {"before": ["before", "after", "old"], "after": ["before", "after", "new"]}
    for name, expected in opened_by.items():
        state, found = seals[name].seal({}, b"x"), []
        for other, seal in seals.items():
            with contextlib.suppress(SealBroken):
                seal.open(state, b"x")
                found.append(other)
        assert found == expected


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("short", 0o600, "openssl rand"),
        (f"{'k' * 44}\nshort", 0o600, "openssl rand"),
        ("\n".join(["k" * 44] * 3), 0o600, "has 3 keys; write two lines"),
        ("k" * 44, 0o604, "chmod o-r"),
        ("k" * 44, 0o602, "chmod o-w"),
    ],
)
def test_a_key_that_is_none_or_no_secret_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(ConfigError, match="openssl rand"):
        read_state_key(tmp_path / "none")
    with pytest.raises(ConfigError, match=message):
        read_state_key(key_file(tmp_path, text, mode))
