"""Which proxy leads where."""

from __future__ import annotations

import pytest

from gaia.http.proxies import Proxies, Proxy, basic_authorization
from gaia.http.url import Url

PLAIN, SECURE = Url.parse("http://example.com/"), Url.parse("https://example.com/")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


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
