"""Long strings are decoded by themselves; what comes out is what any decoder makes of the line."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.protocol import messages as long_strings
from gaia.mcp.protocol.messages import loads

LONG = "x" * 100_000

Json = dict[str, Any]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what orjson was given."""
    lengths: list[int] = []

    def loads_and_note(data: Any) -> Any:
        lengths.append(len(data))
        return orjson.loads(data)

    class Noting:
        loads = staticmethod(loads_and_note)

    monkeypatch.setattr(long_strings, "orjson", Noting)
    return lengths


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "result": {"content": [{"type": "image", "data": LONG}]}},
        {"result": {"content": [{"text": LONG}, {"text": f"{LONG}é€😀"}], "structuredContent": {"text": LONG}}},
        [LONG],
        [[LONG, 1, None, [LONG, ""]], {"a": {"b": [LONG]}}],
    ],
)
def test_they_never_pass_the_decoder(decoded: list[int], value: Any) -> None:
    assert loads(orjson.dumps(value)) == value
    (length,) = decoded
    assert length < 1000


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        {LONG: 1},
        {LONG: LONG},
        {"text": LONG + "\n"},
        {"text": "a\nb", "data": LONG},
        {"data": LONG, "numbers": list(range(2000))},
        {"many": [str(number) for number in range(100)], "data": LONG},
        ["short", *["y" * 1000] * 100],
    ],
)
def test_what_is_not_that_simple_is_left_to_the_decoder(decoded: list[int], value: Any) -> None:
    line = orjson.dumps(value)
    assert loads(line) == value
    assert decoded[-1] == len(line)


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert loads(b'{"a": "%s", "a": "%s"}' % (LONG.encode(), LONG.upper().encode())) == {"a": LONG.upper()}


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": "%s"' % LONG.encode(),
        b'{"a": "%s}' % LONG.encode(),
        b'{"a": "%s" "b"}' % LONG.encode(),
        b'{"a": "%s\xff"}' % LONG.encode(),
        b'{"a": "%s", "b": NaN}' % LONG.encode(),
        LONG.encode(),
    ],
)
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(line)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20) | st.text("ab", min_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    )
)
def test_it_agrees_with_the_decoder(value: Any) -> None:
    line = orjson.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_strings, "LONG", 4)
        assert loads(line) == value
