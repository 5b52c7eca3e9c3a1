"""Where an issuer's keys are found, and which of its answers are taken."""

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.gateway.access.issuer_keys import KeysUnavailable, fetch_keys
from gaia.mcp.gateway.access.limit_settings import ClaimRule, IssuerSettings
from tests.gateway.token_issuer import KeyServer, SigningKey

OAUTH, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer() as server:
        yield server


def settings(server: KeyServer, path: str = "", **values: Any) -> IssuerSettings:
    return IssuerSettings(issuer=server.url + path, profiles=[ClaimRule(profile="everything")], **values)


def test_they_are_where_the_metadata_says(server: KeyServer) -> None:
    key = SigningKey()
    server.publish(key)
    assert fetch_keys(settings(server)) == [key.public]
    assert server.asked == [OAUTH, "/jwks"]


def test_an_issuer_of_openid_connect_with_a_path(server: KeyServer) -> None:
    server.answers["/realm" + OPENID] = {"issuer": f"{server.url}/realm", "jwks_uri": f"{server.url}/keys"}
    server.answers["/keys"] = {"keys": [{"kty": "EC"}, "no key"]}
    assert fetch_keys(settings(server, "/realm")) == [{"kty": "EC"}]
    assert server.asked == [OAUTH + "/realm", "/realm" + OPENID, "/keys"]


def test_an_address_that_is_configured_is_the_only_one_asked(server: KeyServer) -> None:
    server.answers["/own"] = {"keys": []}
    assert fetch_keys(settings(server, jwks_uri=server.url + "/own")) == []
    assert server.asked == ["/own"]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, "HTTP 404.*HTTP 404"),
        ({OAUTH: {"issuer": "https://other.example", "jwks_uri": "https://other.example"}}, "of another issuer"),
        ({OAUTH: {"issuer": "SELF", "jwks_uri": "http://other.example/keys"}}, "must be an https URL"),
        ({OAUTH: {"issuer": "SELF"}}, "must be an https URL"),
        ({OAUTH: b"[]"}, "not a JSON object"),
        ({OAUTH: b"[" * 100_000}, "not a JSON object"),
        ({OAUTH: b"x" * 600_000}, "longer than"),
    ],
)
def test_other_metadata_is_refused(server: KeyServer, answers: dict[str, Any], problem: str) -> None:
    for path, answer in answers.items():
        is_own = isinstance(answer, dict) and answer.get("issuer") == "SELF"
        server.answers[path] = {**answer, "issuer": server.url} if is_own else answer
    with pytest.raises(KeysUnavailable, match=problem):
        fetch_keys(settings(server))


@pytest.mark.parametrize("answer", [500, b"", {"keys": 5}, []])
def test_other_key_sets_are_refused(server: KeyServer, answer: Any) -> None:
    server.answers["/own"] = answer
    with pytest.raises(KeysUnavailable, match="/own"):
        fetch_keys(settings(server, jwks_uri=server.url + "/own"))


def test_an_issuer_that_is_not_there_is_an_error() -> None:
    with KeyServer() as server:
        gone = settings(server)
    with pytest.raises(KeysUnavailable, match=r"127\.0\.0\.1"):
        fetch_keys(gone)


def test_proxies_that_cannot_be_used_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://proxy.example")
    with pytest.raises(KeysUnavailable, match="socks5"):
        fetch_keys(IssuerSettings(issuer="https://login.example", profiles=[ClaimRule(profile="everything")]))
