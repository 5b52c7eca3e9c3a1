"""A sealed state can be used for what it was made for, by those that it was made for, for a while."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.upstream.sealing import SealBroken, StateSeal, binding_of, read_state_key

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


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "state.key"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_gateways_that_share_a_key_open_what_one_of_them_has_sealed(tmp_path: Path) -> None:
    first, second = (StateSeal(read_state_key(key_file(tmp_path, "k" * 44 + end))) for end in ("", "\n"))
    assert second.open(first.seal({"state": 1}, b"x"), b"x") == {"state": 1}


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [("short", 0o600, "openssl rand"), ("k" * 44, 0o604, "chmod o-r"), ("k" * 44, 0o602, "chmod o-w")],
)
def test_a_key_that_is_none_or_no_secret_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_state_key(key_file(tmp_path, text, mode))


def test_a_key_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="openssl rand"):
        read_state_key(tmp_path / "none")
