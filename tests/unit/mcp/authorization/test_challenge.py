"""What a refusal of a server asks for."""

import pytest

from gaia.mcp.authorization.challenge import Challenge

URL = "https://mcp.example.com/mcp"


def challenge(status: int, wanted: str = "") -> Challenge:
    found = Challenge.of(status, wanted, None)
    assert found is not None
    return found


@pytest.mark.parametrize("wanted", [None, "", "Bearer", 'Basic realm="x"', 'Bearer error="invalid_token"'])
def test_any_401_is_one(wanted: str | None) -> None:
    assert Challenge.of(401, wanted, None) == Challenge(401, wanted or "", None)
    assert not challenge(401, wanted or "").wants_more


def test_a_long_one_is_cut() -> None:
    long = challenge(401, "Bearer scope=" + "x" * 100_000)
    assert len(long.www_authenticate) == 8192


@pytest.mark.parametrize(
    "wanted",
    [
        'Bearer error="insufficient_scope"',
        "Bearer error=insufficient_scope",
        'Bearer realm="x",error="insufficient_scope", scope="write"',
    ],
)
def test_a_403_is_one_if_it_wants_another_scope_and_no_other_status_is(wanted: str) -> None:
    assert challenge(403, wanted).wants_more
    assert [Challenge.of(status, wanted, None) for status in (200, 400, 404, 500)] == [None] * 4


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        "Bearer",
        'Bearer error="invalid_token"',
        'Bearer error_description="insufficient_scope"',
        'Bearer xerror="insufficient_scope"',
        'Bearer error="insufficient_scope_of_something"',
    ],
)
def test_any_other_403_has_nothing_to_do_with_a_login(wanted: str | None) -> None:
    assert Challenge.of(403, wanted, None) is None


@pytest.mark.parametrize(
    ("wanted", "scope"),
    [
        ('Bearer scope="read write"', "read write"),
        ("Bearer scope=read, error=invalid_token", "read"),
        ('Bearer error="x",scope=""', ""),
        ("Bearer", None),
        ('Bearer noscope="read"', None),
    ],
)
def test_the_scope_is_read_quoted_and_unquoted(wanted: str, scope: str | None) -> None:
    assert challenge(401, wanted).scope == scope


def test_the_replayed_request_looks_like_the_refused_one() -> None:
    wanted = 'Bearer error="insufficient_scope"'
    found = Challenge.of(403, wanted, "2026-07-28")
    assert found is not None
    request, answer = found.replay("https://mcp.example.com/other")
    assert (request.method, str(request.url)) == ("POST", "https://mcp.example.com/other")
    assert request.headers["MCP-Protocol-Version"] == "2026-07-28"
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (403, wanted)


def test_without_a_revision_and_a_header_none_is_made_up() -> None:
    request, answer = challenge(401).replay(URL)
    assert "MCP-Protocol-Version" not in request.headers
    assert "WWW-Authenticate" not in answer.headers
