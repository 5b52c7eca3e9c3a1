"""The cookies of one server."""

from __future__ import annotations

from gaia.http.request import Cookies
from gaia.http.url import Url

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
