"""Whom an HTTP server lets in."""

import pytest

from gaia.serving.options import HttpOptions, UnsafeOptions


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "agents.example", ""])
def test_other_machines_need_a_token_and_this_one_does_not(host: str) -> None:
    for local in ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"):
        HttpOptions(host=local).check()
    with pytest.raises(UnsafeOptions, match="can be reached from other machines"):
        HttpOptions(host=host).check()
    HttpOptions(host=host, token="secret").check()
    HttpOptions(host=host, allow_anonymous=True).check()
    with pytest.raises(UnsafeOptions, match="empty"):
        HttpOptions(token=" ").check()
    assert "sesame" not in repr(HttpOptions(token="open-sesame")), "it is not shown"


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("[::1]:8000", True),
        ("agents.example:8000", True),
        ("Agents.Example", True),
        ("other.example", False),
        ("localhost.other.example", False),
        ("localhost:8000@other.example", False),
        ("other.example/localhost", False),
        ("localhost:nonsense", False),
        ("", False),
    ],
)
def test_hosts(header: str, allowed: bool) -> None:
    assert HttpOptions(allow_hosts=("agents.example",)).allows_host(header) is allowed


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("http://localhost:8000", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("https://LOCALHOST:8000", True),
        ("http://agents.example:8000", True),
        ("https://app.example", True),
        ("http://localhost:3000", False),
        ("http://localhost", False),
        ("https://localhost", False),
        ("http://localhost.evil.example:8000", False),
        ("http://127.0.0.1.nip.io:8000", False),
        ("http://localhost.:8000", False),
        ("http://127.0.0.2:8000", False),
        ("http://localhost:8000@evil.example", False),
        ("http://localhost:8000/", False),
        ("http://localhost:8000000", False),
        ("http://app.example", False),
        ("https://app.example.other", False),
        ("null", False),
        ("", False),
        ("file://localhost:8000", False),
        ("chrome-extension://localhost:8000", False),
    ],
)
def test_origins(header: str, allowed: bool) -> None:
    options = HttpOptions(allow_hosts=("agents.example",), allow_origins=("https://app.example",))
    assert options.allows_origin(header, "localhost:8000") is allowed


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://localhost", "localhost", True),
        ("http://localhost:80", "localhost", True),
        ("https://localhost", "localhost:443", True),
        ("http://localhost:9000", "127.0.0.1:9000", True),
        ("http://localhost", "localhost:8000", False),
        ("http://localhost:8000", "localhost", False),
        ("http://localhost:8000", "localhost:nonsense", False),
    ],
)
def test_the_port_of_a_page_is_the_one_that_it_calls(origin: str, host: str, allowed: bool) -> None:
    """Which need not be the one that the server listens at: a container may map it to another."""
    assert HttpOptions().allows_origin(origin, host) is allowed
