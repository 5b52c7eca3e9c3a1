"""Filters hold for each way that a server may read a URI."""

import os
import re
from collections.abc import Callable
from urllib.parse import unquote, urlparse, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gaia.mcp.gateway.access.resource_uri import allows_template, allows_uri
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter

WITHOUT_ETC = ToolFilter(None, ["file:///etc/*"])
HOME = ToolFilter(["file:///home/*"])


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "file:///%65tc/passwd",
        "file:///%2565tc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file:etc/passwd",
        "file://localhost/etc/passwd",
        "file://other/etc/passwd",
        "file://user@localhost/etc/passwd",
        "file:////etc/passwd",
        "file:///etc//passwd",
        "file:///etc%2Fpasswd",
        "file:///ETC/passwd",
        "file:///etc./passwd",
        "file:///etc%20/passwd",
        "file:///\uff45tc/passwd",
        "file:///home/../etc/passwd",
        "file:///home/%2e%2E/etc/passwd",
        "file:///home/%252e%252e/etc/passwd",
        "file:///home/..%2fetc/passwd",
        "file:///home/?/../../etc/passwd",
        "file:///home/#/../../etc/passwd",
        "file:///home/..;x/etc/passwd",
        "file:///etc;x/passwd",
        "file:///;x/etc/passwd",
        "file:///etc%3Bx=1;y/passwd",
        "file:///home/..%20/etc/passwd",
        "file:///home/\uff0e\uff0e/etc/passwd",
        "file:///home\\..\\etc\\passwd",
        "file:///home%5C..%5Cetc/passwd",
        "file:///./etc/passwd",
        " file:///etc/passwd",
        "file:///etc/passwd ",
        "\tfile:///etc/passwd",
        "fi\nle:///etc/passwd",
        "file:///e\u200btc/passwd",
        "file:///e%E2%80%8Btc/passwd",
        "file:///e%00tc/passwd",
        "file:///etc/%zz",
        "file:///etc/%FF",
        "file:///et{c}/passwd",
        "/etc/passwd",
        "etc/passwd",
        "",
    ],
)
def test_another_spelling_passes_by_no_filter(uri: str) -> None:
    assert not allows_uri(WITHOUT_ETC, "s", uri)
    assert not allows_uri(HOME, "s", uri)
    assert allows_uri(ALLOW_ALL, "s", uri)


@pytest.mark.parametrize(
    ("denied", "uri"),
    [
        ("file:///a/secret.txt", "file:///a/secret.txt?x"),
        ("file:///a/secret.txt", "file:///a/secret.txt#x"),
        ("file:///a/secret.txt", "file:///a/secret.txt;x"),
        ("file:///a/secret.txt", "file:///a/secret.txt::$DATA"),
        ("https://h/a/*", "https://h/a;jsessionid=1/b"),
        ("file:///a/secret.txt", "file:///a/secret.txt/"),
        ("FILE://localhost/a/my%20secret", "file:///a/my%20secret"),
        ("file:/a//b", "file:///a/b"),
        ("file:///a/%5Bb%5D", "file:///a/%5Bb%5D"),
        ("*secret*", "file:///a/SECRET"),
        ("https://evil.example/*", "https://EVIL.example:443"),
        ("https://evil.example/*", "https://evil.example.:0443/a"),
        ("https://evil.example/*", "https://good.example@evil.example/a"),
        ("https://evil.example/*", "https:evil.example/a"),
        ("https://evil.example/*", "https://ev%69l.example/a"),
        ("https://evil.example/*", "https://\u24d4vil.example/a"),
        ("https://xn--bcher-kva.example/*", "https://b\u00fccher.example/a"),
        ("http://127.0.0.1/*", "http://2130706433/a"),
        ("http://127.0.0.1/*", "http://127.1/a"),
        ("http://127.0.0.1/*", "http://0x7f.0.0.1/a"),
        ("http://[[]::1]/*", "http://[0:0::1]:80/a"),
        ("http://[[]::1]/*", "http://[:::1]/a"),
        ("db://main/*", "DB://user@Main/a"),
        ("note:a", "note:///a"),
    ],
)
def test_a_denied_resource_is_denied_in_each_of_its_spellings(denied: str, uri: str) -> None:
    assert not allows_uri(ToolFilter(None, [denied]), "s", uri)


@pytest.mark.parametrize(
    ("allowed", "uri"),
    [
        ("file:///pub/*", "file:///pub//etc/passwd"),
        ("file:///pub/*", "file:///pub/%2Fetc/passwd"),
        ("file:///pub/*", "FILE:///pub/a"),
        ("file:///*.txt", "file:///secret.key?.txt"),
        ("file:///*.txt", "file:///secret.key#.txt"),
        ("file:///*.txt", "file:///secret.key;.txt"),
        ("https://good.example*", "https://good.example@evil.example/"),
        ("https://good.example*", "https://good.example%2F@evil.example/"),
    ],
)
def test_an_allow_list_allows_what_it_says_in_each_reading(allowed: str, uri: str) -> None:
    assert not allows_uri(ToolFilter([allowed]), "s", uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///home/a%20b",
        "file:///home/\u00fc",
        "file:///home/%C3%BC",
        "file:///home/a%23b",
        "file:///home/.hidden/a..b",
        "file:///home/",
        "file:///",
        "db://Main?q=%41",
        "db://Main/t?a=1&b=2#c",
        "db:////tmp/x",
        "https://a.example",
        "https://a.example:8443/b?c=d",
        "http://192.0.2.1/a",
        "http://[2001:db8::1]/a",
        "urn:a:b",
        "web://get/https://a.example/b",
        "x://",
    ],
)
def test_other_uris_are_as_they_are(uri: str) -> None:
    assert allows_uri(ToolFilter([uri.replace("[", "[[]")]), "s", uri)
    assert allows_uri(ToolFilter(["*"]), "s", uri) or "//" in uri.split(":", 1)[1].lstrip("/")
    assert allows_uri(WITHOUT_ETC, "s", uri)


def test_a_pattern_with_a_wildcard_for_its_query_allows_queries() -> None:
    assert allows_uri(ToolFilter(["db://users?id=*"]), "s", "db://users?id=1")
    assert allows_uri(ToolFilter(["db://users[?]id=*"]), "s", "db://users?id=1")
    assert not allows_uri(ToolFilter(["db://users[?]id=*"]), "s", "db://keys?id=1")


def test_templates() -> None:
    assert allows_template(WITHOUT_ETC, "s", "file:///{+path}")
    assert allows_template(HOME, "s", "file:///home/{name}")
    assert not allows_template(HOME, "s", "file:///{name}")
    assert not allows_template(WITHOUT_ETC, "s", "FILE://localhost/etc/{name}")


# Servers that read a URI in their own ways.


def by_its_path(uri: str) -> str:
    return unquote(urlsplit(uri).path)


def by_its_path_without_parameters(uri: str) -> str:
    return unquote(urlparse(uri).path)


def by_its_path_twice_decoded(uri: str) -> str:
    return unquote(unquote(urlsplit(uri).path))


def by_a_template(uri: str) -> str:
    found = re.fullmatch("file:/*(.*)", uri, re.IGNORECASE | re.DOTALL)
    return "/" + unquote(found[1]) if found else "/none"


def by_a_template_of_a_folder(uri: str) -> str:
    found = re.fullmatch("file:///pub/(.*)", uri, re.DOTALL)
    return os.path.join("/pub", unquote(found[1])) if found else "/none"


def as_browsers_do(uri: str) -> str:
    text = re.sub("[\t\r\n]", "", uri.strip("".join(map(chr, range(33))))).replace("\\", "/")
    found = re.fullmatch("file:/*(?:localhost/)?([^?#]*).*", text, re.IGNORECASE)
    return "/" + unquote(re.sub("%2e", ".", found[1], flags=re.IGNORECASE)) if found else "/none"


READINGS: list[Callable[[str], str]] = [
    by_its_path,
    by_its_path_without_parameters,
    by_its_path_twice_decoded,
    by_a_template,
    by_a_template_of_a_folder,
    as_browsers_do,
]

PARTS = ["pub", "private", "key.txt", "..", ".", "", "etc", "localhost", "%2e%2e", "%2E.", "%252e%252e", "..;x", "a?b"]
MARKS = ["/", "//", "\\", "%2F", "%5C", "%252F", "?", "#", ";", "?/", " ", "\t", "\n", "%20", "%00", "@", ":"]
SPELLINGS = st.builds(
    lambda start, pieces: start + "".join(pieces),
    st.sampled_from(
        ["file:///", "file:///pub/", "file:/", "file:", "FILE:///", " file:///", "file://localhost/", "x:"]
    ),
    st.lists(st.sampled_from([*PARTS, *MARKS]) | st.sampled_from("privateub%67./"), max_size=10),
)


def place_of(reading: Callable[[str], str], uri: str) -> str:
    return os.path.normpath("/" + reading(uri).replace("\0", "").lstrip("/"))


@given(SPELLINGS)
@example("file:///pub/?/../../private/key.txt")
@example("file:/private/key.txt")
@example("file:///pub//private/key.txt")
def test_whatever_passes_leads_no_server_to_what_is_denied(uri: str) -> None:
    if allows_uri(ToolFilter(None, ["file:///private", "file:///private/*"]), "s", uri):
        for reading in READINGS:
            if reading is not by_a_template_of_a_folder:
                place = place_of(reading, uri)
                assert place != "/private"
                assert not place.startswith("/private/"), reading


@given(SPELLINGS)
@example("file:///pub/?/../../private/key.txt")
@example("file:///pub//private/key.txt")
def test_whatever_passes_an_allow_list_leads_no_server_elsewhere(uri: str) -> None:
    if allows_uri(ToolFilter(["file:///pub/*"]), "s", uri):
        for reading in READINGS:
            assert place_of(reading, uri).startswith("/pub"), reading
