"""What is put into results without decoding them."""

from __future__ import annotations

import pytest

from gaia.mcp.gateway.messages import may_have, with_members


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b'{"a":1}', True),
        (b'{"b":1}', False),
        (rb'{"\u0061":1}', True),
        (b'{"b":"' + 10_000 * b"x" + b'"}', True),
    ],
)
def test_a_name_may_be_written_in_escapes_and_long_results_are_not_searched(encoded: bytes, expected: bool) -> None:
    assert may_have(encoded, b'"a"') is expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [(b"{}", b'{"a":1}'), (b" { } ", b'{"a":1} '), (b'{ "b":2 }', b'{"a":1,"b":2 }')],
)
def test_members_are_put_in_front(result: bytes, expected: bytes) -> None:
    assert with_members(result, b'"a":1') == expected
