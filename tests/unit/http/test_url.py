"""What a URL is made of, and which proxy leads to it."""

from __future__ import annotations

import dataclasses

import pytest

from gaia.http.request import Cookies, HttpSettings, encode_head, merged
from gaia.http.url import Proxies, Proxy, Url, basic_authorization, credentials_of


class TestParse:
    @pytest.mark.parametrize(
        ("text", "host", "port", "target", "authority"),
        [
            ("http://Example.COM", "example.com", 80, "/", "example.com"),
            ("https://example.com/", "example.com", 443, "/", "example.com"),
            ("https://example.com:8443/mcp?key=a%20b#part", "example.com", 8443, "/mcp?key=a%20b", "example.com:8443"),
            ("http://me:secret@example.com:80/a b/ä", "example.com", 80, "/a%20b/%C3%A4", "example.com"),
            ("http://[::1]:8080/mcp", "::1", 8080, "/mcp", "[::1]:8080"),
            ("http://[0:0::1]/", "::1", 80, "/", "[::1]"),
            ("http://bücher.example/", "xn--bcher-kva.example", 80, "/", "xn--bcher-kva.example"),
            (" https://my_host/x ", "my_host", 443, "/x", "my_host"),
            ("https://example.com?key=1", "example.com", 443, "/?key=1", "example.com"),
        ],
    )
    def test_the_parts_are_as_a_request_needs_them(
        self, text: str, host: str, port: int, target: str, authority: str
    ) -> None:
        url = Url.parse(text)
        assert (url.host, url.port, url.target, url.authority) == (host, port, target, authority)
        assert Url.parse(str(url)) == url

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "example.com/secret",
            "ftp://example.com/secret",
            "http:///secret",
            "http://example.com:0/secret",
            "http://example.com:65536/secret",
            "http://example.com:port/secret",
            "http://exa mple.com/secret",
            "http://exa\r\nmple.com/secret",
            "http://example.com/secret\r\nX-Evil: 1",
            "http://example.com/secret\0",
            "http://a%00b/secret",
            "http://[::g]/secret",
            "http://\u2488.com/secret",
            f"http://{'a' * 64}ä.com/secret",
        ],
    )
    def test_what_no_request_can_be_made_to_is_refused_without_showing_it(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^url: ") as caught:
            Url.parse(text)
        assert "secret" not in str(caught.value)


class TestJoin:
    URL = Url.parse("https://example.com/a/b?key=secret")

    @pytest.mark.parametrize(
        ("reference", "joined"),
        [
            ("/messages?id=1", "https://example.com/messages?id=1"),
            ("c", "https://example.com/a/c"),
            ("//other.example/x", "https://other.example/x"),
            ("http://example.com/a", "http://example.com/a"),
        ],
    )
    def test_it_follows_a_reference(self, reference: str, joined: str) -> None:
        assert str(self.URL.join(reference)) == joined

    def test_the_origin_tells_whether_it_is_the_same_server(self) -> None:
        assert self.URL.join("/other").origin == self.URL.origin
        for elsewhere in ("http://example.com/", "https://example.com:444/", "https://example.org/"):
            assert self.URL.join(elsewhere).origin != self.URL.origin

    @pytest.mark.parametrize("reference", ["ftp://example.com/", "http://[", "http://example.com:x/"])
    def test_a_reference_to_nowhere_is_refused(self, reference: str) -> None:
        with pytest.raises(ValueError, match=r"^url: "):
            self.URL.join(reference)

    def test_messages_leave_out_what_may_be_secret(self) -> None:
        assert self.URL.without_query() == "https://example.com/a/b"


@pytest.mark.parametrize(
    ("text", "credentials"),
    [
        ("http://example.com/", None),
        ("http://me@example.com/", ("me", "")),
        ("http://me:a%2Fb%3A@example.com/", ("me", "a/b:")),
    ],
)
def test_the_credentials_of_a_url_are_its_user_and_password(text: str, credentials: tuple[str, str] | None) -> None:
    assert credentials_of(text) == credentials


PLAIN, SECURE = Url.parse("http://example.com/"), Url.parse("https://example.com/")


@pytest.fixture(autouse=True)
def no_cgi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUEST_METHOD", raising=False)


class TestEnvironment:
    @pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
    def test_each_scheme_has_a_variable(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "proxy.example:3128")
        proxies = Proxies.from_environment()
        assert proxies.for_url(PLAIN) == Proxy(Url.parse("http://proxy.example:3128"))
        assert proxies.for_url(SECURE) is None

    def test_one_is_for_all_that_have_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "https://all.example")
        monkeypatch.setenv("https_proxy", "http://me:a%40b@secure.example")
        proxies = Proxies.from_environment()
        assert proxies.for_url(PLAIN) == Proxy(Url.parse("https://all.example:443"))
        assert proxies.for_url(SECURE) == Proxy(Url.parse("http://secure.example"), basic_authorization("me", "a@b"))
        assert "Basic" not in repr(proxies)

    def test_there_may_be_none(self) -> None:
        assert Proxies.from_environment().for_url(SECURE) is None

    @pytest.mark.parametrize("value", ["socks5://me:secret@host:1080", "ftp://host", "http://host:port", "http://"])
    def test_what_is_no_proxy_is_refused(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", value)
        with pytest.raises(ValueError, match=r"not supported|url:") as caught:
            Proxies.from_environment()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "url", "direct"),
    [
        ("*", "http://example.com/", True),
        ("example.com", "http://example.com/", True),
        ("EXAMPLE.com", "http://www.example.com/", True),
        ("example.com", "http://wwwexample.com/", False),
        (".example.com", "http://www.example.com/", True),
        ("*.example.com", "http://www.example.com/", True),
        (".example.com", "http://example.com/", False),
        ("a.example, example.com", "http://example.com/", True),
        ("example.com:8080", "http://example.com:8080/", True),
        ("example.com:8080", "http://example.com/", False),
        ("localhost", "http://localhost:9/", True),
        ("127.0.0.1", "http://127.0.0.1/", True),
        ("127.0.0.1:81", "http://127.0.0.1/", False),
        ("10.0.0.0/8", "http://10.1.2.3/", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("10.0.0.0/8", "http://example.com/", False),
        ("::1", "http://[::1]/", True),
        ("[::1]", "http://[::1]/", True),
        ("fd00::/8", "http://[fd12::1]/", True),
        ("https://example.com", "http://example.com/", False),
        ("https://example.com", "https://example.com/", True),
        ("all://example.com", "https://example.com/", True),
        ("", "http://example.com/", False),
        ("999.1/400, , %", "http://example.com/", False),
    ],
)
def test_some_hosts_need_none(entries: str, url: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example")
    monkeypatch.setenv("NO_PROXY", entries)
    assert (Proxies.from_environment().for_url(Url.parse(url)) is None) is direct


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


def test_settings_cannot_be_changed_show_no_secrets_and_have_cookies_of_their_own() -> None:
    settings = HttpSettings(headers={"Authorization": "hunter2"})
    assert settings.cookies is not HttpSettings().cookies
    assert "hunter2" not in repr(settings)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.max_bytes = 5  # type: ignore[misc]


URL = Url.parse("https://example.com/mcp")


def test_a_cookie_can_be_replaced_and_deleted() -> None:
    cookies = Cookies()
    assert not cookies.has_any
    assert cookies.header_for(URL) is None
    for said, sent in (("node=7", "node=7"), ("node=8", "node=8"), ("node=; Max-Age=0", None)):
        cookies.take(URL, [said])
        assert cookies.header_for(URL) == sent


def test_what_the_server_sets_is_sent_again_to_where_it_belongs() -> None:
    cookies = Cookies()
    cookies.take(URL, ["node=7; Path=/", "deep=1; Path=/other", "safe=2; Secure; HttpOnly"])
    assert cookies.has_any
    assert cookies.header_for(URL) == "node=7; safe=2"
    assert cookies.header_for(Url.parse("http://example.com/mcp")) == "node=7"
    assert cookies.header_for(Url.parse("https://example.com/other/x")) == "deep=1; node=7; safe=2"
    assert cookies.header_for(Url.parse("https://example.org/mcp")) is None


def test_what_is_for_other_servers_or_cannot_be_sent_is_not_kept() -> None:
    cookies = Cookies()
    cookies.take(URL, ["a=1; Domain=example.org", "b=1; Domain=com"])
    assert not cookies.has_any
    cookies.take(URL, ["a=\x01", "b=\xe4", "c=1"])
    assert cookies.header_for(URL) == "c=1"


def test_only_as_many_are_kept_as_a_request_can_repeat() -> None:
    cookies = Cookies()
    for answer in range(50):
        cookies.take(URL, [*(f"c{answer}-{number}={'x' * 100}" for number in range(20)), "c0-0=new"])
    sent = cookies.header_for(URL)
    assert sent is not None
    assert 4000 < len(sent) < 10_000
    assert "c0-0=new" in sent
