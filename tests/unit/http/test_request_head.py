"""Request lines and headers, as bytes."""

from __future__ import annotations

import pytest

from gaia.http.request import encode_head, merged


def test_it_is_a_line_for_each_header() -> None:
    head = encode_head("POST", "/mcp", {"Host": "example.com", "X-Team": " a\tb "})
    assert head == b"POST /mcp HTTP/1.1\r\nHost: example.com\r\nX-Team: a\tb\r\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "secret\r\nEvil: 1"),
        ("X", "secret\nEvil: 1"),
        ("X", "secret\rEvil: 1"),
        ("X", "secret\0"),
        ("X", "secret\x7f"),
        ("X", "secret\x85"),
        ("X", "secret ä"),
        ("X\r\nEvil", "secret"),
        ("X ", "secret"),
        ("X:", "secret"),
        ("", "secret"),
        ("Ä", "secret"),
    ],
)
def test_nothing_can_begin_another_header(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"^headers") as caught:
        encode_head("GET", "/", {name: value})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding"])
def test_where_a_request_ends_is_not_for_the_caller_to_say(name: str) -> None:
    with pytest.raises(ValueError, match="the client sets it"):
        encode_head("POST", "/", {name: "5"})


def test_of_headers_with_the_same_name_the_last_one_counts() -> None:
    assert merged({"A": "1", "B": "2"}, {"a": "3", "C": "4"}) == {"a": "3", "B": "2", "C": "4"}
