"""The head of a request, the settings that requests share, and cookies."""

from __future__ import annotations

import dataclasses

import pytest

from gaia.http.request import Cookies, HttpSettings, encode_head, merged
from gaia.http.url import Url


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


def test_each_has_cookies_of_its_own() -> None:
    assert HttpSettings().cookies is not HttpSettings().cookies


def test_they_cannot_be_changed_and_show_no_secrets() -> None:
    settings = HttpSettings(headers={"Authorization": "hunter2"})
    assert "hunter2" not in repr(settings)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.max_bytes = 5  # type: ignore[misc]


URL = Url.parse("https://example.com/mcp")


def test_there_is_nothing_to_send_at_first() -> None:
    cookies = Cookies()
    assert not cookies.has_any
    assert cookies.header_for(URL) is None


def test_what_the_server_sets_is_sent_again_to_where_it_belongs() -> None:
    cookies = Cookies()
    cookies.take(URL, ["node=7; Path=/", "deep=1; Path=/other", "safe=2; Secure; HttpOnly"])
    assert cookies.has_any
    assert cookies.header_for(URL) == "node=7; safe=2"
    assert cookies.header_for(Url.parse("http://example.com/mcp")) == "node=7"
    assert cookies.header_for(Url.parse("https://example.com/other/x")) == "deep=1; node=7; safe=2"
    assert cookies.header_for(Url.parse("https://example.org/mcp")) is None


def test_a_cookie_can_be_replaced_and_deleted() -> None:
    cookies = Cookies()
    cookies.take(URL, ["node=7"])
    cookies.take(URL, ["node=8"])
    assert cookies.header_for(URL) == "node=8"
    cookies.take(URL, ["node=; Max-Age=0"])
    assert cookies.header_for(URL) is None


def test_what_is_for_other_servers_is_not_kept() -> None:
    cookies = Cookies()
    cookies.take(URL, ["a=1; Domain=example.org", "b=1; Domain=com"])
    assert not cookies.has_any


def test_only_as_many_are_kept_as_a_request_can_repeat() -> None:
    cookies = Cookies()
    cookies.take(URL, [f"c{number}={'x' * 100}" for number in range(1000)])
    sent = cookies.header_for(URL)
    assert sent is not None
    assert 7000 < len(sent) < 10_000
    assert "c0=" in sent


def test_a_value_that_cannot_be_sent_is_not_kept() -> None:
    cookies = Cookies()
    cookies.take(URL, ["a=\x01", "b=\xe4", "c=1"])
    assert cookies.header_for(URL) == "c=1"
