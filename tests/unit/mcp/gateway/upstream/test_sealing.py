"""A sealed state can be used for what it was made for, by those that it was made for, for a while."""

from __future__ import annotations

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.gateway.upstream.sealing import SealBroken, StateSeal, binding_of

BINDING = b"what it belongs to"


def test_what_is_sealed_is_opened_and_cannot_be_read() -> None:
    seal = StateSeal()
    state = seal.seal({"state": "secret-state"}, BINDING)
    assert seal.open(state, BINDING) == {"state": "secret-state"}
    assert "secret" not in state
    assert state.isascii()
    assert state != seal.seal({"state": "secret-state"}, BINDING), "no two are alike"


def test_another_binding_or_key_opens_nothing() -> None:
    seal = StateSeal()
    state = seal.seal({"state": 1}, BINDING)
    with pytest.raises(SealBroken):
        seal.open(state, b"something else")
    with pytest.raises(SealBroken):
        StateSeal().open(state, BINDING)


def test_gateways_with_the_same_key_open_each_others_states() -> None:
    state = StateSeal(b"k" * 32).seal({"state": 1}, BINDING)
    assert StateSeal(b"k" * 32).open(state, BINDING) == {"state": 1}
    with pytest.raises(ValueError, match="32 bytes"):
        StateSeal(b"short")


def test_a_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    seal, now = StateSeal(), time.time()
    state = seal.seal({"state": 1}, BINDING)
    monkeypatch.setattr(time, "time", lambda: now + 901)
    with pytest.raises(SealBroken, match="expired"):
        seal.open(state, BINDING)


@given(st.one_of(st.none(), st.integers(), st.text(), st.binary().map(lambda data: data.hex())))
def test_nothing_else_is_a_state(state: object) -> None:
    with pytest.raises(SealBroken):
        StateSeal().open(state, BINDING)


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
