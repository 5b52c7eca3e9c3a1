"""Which URIs a template may stand for."""

import pytest

from gaia.mcp.gateway.views.view import expanded, matches


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("file:///{path}", "file:///a", True),
        ("file:///{path}", "http://a", False),
        ("db://{table}/rows/{id}", "db://users/rows/7", True),
        ("db://{table}/rows/{id}", "db://users/7", False),
        ("db://{table}.json", "db://users.json", True),
        ("db://{table}.json", "db://users.xml", False),
        ("ab{x}ba", "aba", False),
        ("plain://uri", "plain://uri", True),
        ("plain://uri", "plain://other", False),
    ],
)
def test_the_fixed_parts_have_to_stand_in_the_uri_in_their_order(template: str, uri: str, expected: bool) -> None:
    assert matches(template, uri) is expected


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("file:///{+path}", "file:///a/b%20c"),
        ("file:///etc{/path}", "file:///etc/a/b%20c"),
        ("db://{table}/rows{?id,path}", "db:///rows?id=7?path=a/b%20c"),
        ("db://{id:3}.{path*}{other}", "db://7.a/b%20c"),
        ("db://x{.id}{#id}{;id}{}", "db://x.7#7;id=7"),
        ("plain://uri", "plain://uri"),
    ],
)
def test_a_template_with_values(template: str, uri: str) -> None:
    assert expanded(template, {"path": "a/b c", "id": "7"}) == uri
