"""URIs that mean the same."""

import pytest

from gaia.mcp.gateway.access.resource_uri import has_detour, plain_uri


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("FILE://LocalHost/%65tc//passwd", "file:///etc/passwd"),
        ("file:///a/../../etc/", "file:///etc/"),
        ("file:///a/..%5Cb", "file:///b"),
        ("https://Example.org/a?q=%41#%42", "https://example.org/a?q=A#B"),
        ("urn:a:b", "urn:a:b"),
        ("file:///{path}", "file:///{path}"),
        ("x://", "x://"),
        ("x://[", "x://["),
        ("plain", "plain"),
    ],
)
def test_the_plain_form(uri: str, plain: str) -> None:
    assert plain_uri(uri) == plain


def test_detours() -> None:
    assert all(
        map(has_detour, ["file:///a/../b", "file:///./b", "file:///a//b", "file:///a/%2E%2E", "x:..", "x:a\\..\\b"])
    )
    assert not any(map(has_detour, ["file:///a/b/", "file:///a..b", "x:", "x:1", "x://[", "https://a.b/c?d=../e"]))
