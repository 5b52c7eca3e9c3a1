"""Whatever a server writes, in whatever order and pieces: each call ends once, or is still there to be answered for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import CallCancelled
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from tests.fuzz.inputs import run
from tests.fuzz.wire import CALLS, DIALECTS, MAX_LINE, Wire

Json = dict[str, Any]

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())

identifiers = st.integers(1, CALLS)
dialects = st.sampled_from(DIALECTS)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def answer(identifier: int) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "result": {"for": identifier}}


good_answers = identifiers.map(answer)
other_answers = st.builds(
    lambda identifier, members: {"jsonrpc": "2.0", "id": identifier, **members},
    identifiers | identifiers.map(str) | st.sampled_from([0, -1, True, None, 1.0, "x", 10**30]),
    st.fixed_dictionaries({}, optional={"result": any_json, "error": any_json}),
)
notifications = st.builds(
    lambda method, params: {"jsonrpc": "2.0", "method": method, "params": params},
    st.sampled_from(
        [
            "notifications/progress",
            "notifications/cancelled",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/subscriptions/acknowledged",
        ]
    ),
    st.fixed_dictionaries(
        {}, optional={"progressToken": identifiers, "progress": any_json, "requestId": identifiers, "_meta": any_json}
    ),
)
requests = st.builds(
    lambda identifier, method: {"jsonrpc": "2.0", "id": identifier, "method": method},
    identifiers | st.text(max_size=3),
    st.sampled_from(["ping", "sampling/createMessage", "elicitation/create", "roots/list", "tools/call"]),
)
messages = good_answers | other_answers | notifications | requests
batches = st.lists(messages, max_size=4)
junk = st.binary(max_size=40) | st.integers(0, 3).map(lambda extra: b"x" * (MAX_LINE - 1 + extra))
long_answers = identifiers.map(lambda identifier: {**answer(identifier), "ballast": "x" * MAX_LINE})
lines = st.one_of((messages | batches | any_json | long_answers).map(lambda value: json.dumps(value).encode()), junk)
streams = st.lists(lines, max_size=30).map(lambda found: b"".join(line + b"\n" for line in found))


def in_pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(
    dialects, st.permutations(range(1, CALLS + 1)), st.lists(notifications | requests | junk.map(bytes.hex)), st.data()
)
def test_answers_reach_their_calls_whatever_comes_in_between(
    negotiated: NegotiatedProtocol, order: list[int], between: list[Any], data: st.DataObject
) -> None:
    said = data.draw(st.permutations([*map(answer, order), *between]))
    stream = b"".join(json.dumps(message).encode() + b"\n" for message in said)
    wire = Wire(negotiated)
    for piece in in_pieces(stream, data.draw(st.lists(st.integers(0, 10_000), max_size=10))):
        wire.receive(piece)
    assert [call.result for call in wire.calls] == [{"for": call.id} for call in wire.calls]
    wire.close()
    wire.check()


@given(dialects, streams, st.lists(st.integers(0, 100_000), max_size=10), st.data())
def test_any_interleaving(negotiated: NegotiatedProtocol, stream: bytes, cuts: list[int], data: st.DataObject) -> None:
    """Callers give up in between, too."""
    wire = Wire(negotiated)
    for piece in in_pieces(stream, cuts):
        wire.receive(piece)
        call = wire.calls[data.draw(identifiers) - 1]
        if data.draw(st.booleans()) and call.finish(error=CallCancelled("given up")):
            wire.connection.cancel_call(call, "given up")
    wire.close()
    wire.check()


@given(
    dialects,
    streams,
    st.lists(st.tuples(st.sampled_from(["flip", "cut", "repeat", "insert"]), st.integers(0), st.integers(0, 255))),
)
def test_any_damage(negotiated: NegotiatedProtocol, stream: bytes, damages: list[tuple[str, int, int]]) -> None:
    """Of messages that were right once."""
    damaged = bytearray(stream)
    for kind, place, value in damages:
        if not damaged:
            break
        at = place % len(damaged)
        if kind == "flip":
            damaged[at] = value
        elif kind == "cut":
            del damaged[at : at + value]
        elif kind == "repeat":
            damaged[at:at] = damaged[at : at + value]
        else:
            damaged[at:at] = bytes([value])
    wire = Wire(negotiated)
    wire.receive(bytes(damaged))
    wire.close()
    wire.check()
    for line in damaged.splitlines():
        Wire.check_decoding(bytes(line))


@given(dialects, st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=10))
def test_any_bytes(negotiated: NegotiatedProtocol, stream: bytes, cuts: list[int]) -> None:
    wire = Wire(negotiated)
    for piece in in_pieces(stream, cuts):
        wire.receive(piece)
    wire.close()
    wire.check()


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.name)
def test_inputs_that_fuzzing_begins_with(file: Path) -> None:
    run(file.read_bytes())
