"""The keys of limits and issuers in the clients file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gaia.mcp.gateway.access.limit_settings import (
    CircuitSettings,
    ClaimRule,
    ClientLimits,
    GatewayLimits,
    IssuerSettings,
    Limit,
    claim_values,
    require_secure_url,
)


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (Limit, {"concurrent": 0}, "concurrent: must be a whole number"),
        (Limit, {"concurrent": True}, "concurrent"),
        (Limit, {"per_second": 0}, "perSecond: must be a number"),
        (Limit, {"per_second": float("nan")}, "perSecond"),
        (Limit, {"burst": 2}, "burst: means nothing without perSecond"),
        (Limit, {"answer_bytes": -1}, "answerBytes"),
        (CircuitSettings, {"failures": 0}, "failures"),
        (CircuitSettings, {"window": 0}, "window"),
        (CircuitSettings, {"cooldown": -1}, "cooldown"),
        (ClientLimits, {"circuit": CircuitSettings()}, "perTool"),
        (ClientLimits, {"per_server": {"*": Limit(circuit=CircuitSettings())}}, "perTool"),
        (GatewayLimits, {"per_server": {"*": Limit(circuit=CircuitSettings())}}, "perTool"),
        (GatewayLimits, {"waiting": 0}, "waiting"),
        (GatewayLimits, {"waiting_per_client": 0}, "waitingPerClient"),
        (GatewayLimits, {"max_wait": 0}, "maxWait"),
    ],
)
def test_unusable_figures_are_refused(kind: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind(**values)


def test_keys_are_those_of_the_file_and_others_are_refused() -> None:
    limits = msgspec.json.decode(
        b'{"perClient": {"perSecond": 5, "perTool": {"x": {"circuit": {"failures": 2}}}}, "maxWait": 2}',
        type=GatewayLimits,
    )
    assert limits.per_client is not None
    assert limits.per_client.per_second == 5
    with pytest.raises(msgspec.ValidationError, match="persecond"):
        msgspec.json.decode(b'{"perClient": {"persecond": 5}}', type=GatewayLimits)


RULES = [ClaimRule(profile="everything")]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"issuer": "http://login.example"}, "issuer: must be an https URL"),
        ({"jwks_uri": "ftp://login.example"}, "jwksUri"),
        ({"profiles": []}, "profiles: name at least one"),
        ({"algorithms": ["none"]}, "'none' is none of"),
        ({"algorithms": ["HS256"]}, "'HS256' is none of"),
        ({"algorithms": []}, "algorithms: name at least one"),
    ],
)
def test_what_cannot_be_trusted_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        IssuerSettings(**{"issuer": "https://login.example", "profiles": RULES, **values})


@pytest.mark.parametrize(
    "url", ["http://localhost:1/a", "http://127.0.0.1", "http://[::1]:8/", "https://x.example/a?b"]
)
def test_urls_of_the_internet_are_https(url: str) -> None:
    require_secure_url("it", url)


@pytest.mark.parametrize("url", ["http://x.example", "https://", "https://a:b@x", "https://x#y", "https://x:0x", "x"])
def test_other_urls_are_refused_by_name(url: str) -> None:
    with pytest.raises(ValueError, match=r"^it: "):
        require_secure_url("it", url)


@pytest.mark.parametrize(
    ("claim", "values"),
    [
        ("scope", ["read", "write"]),
        ("groups", ["dev", "ops"]),
        ("role", ["the boss"]),
        ("realm_access.roles", ["admin"]),
        ("https://x.example/groups", ["a"]),
        ("number", []),
        ("missing.deep", []),
        ("role.deep", []),
    ],
)
def test_the_values_of_a_claim(claim: str, values: list[str]) -> None:
    claims = {
        "scope": "read write",
        "groups": ["dev", "ops", 5],
        "role": "the boss",
        "realm_access": {"roles": ["admin"]},
        "https://x.example/groups": ["a"],
        "number": 5,
    }
    assert claim_values(claims, claim) == values


def test_the_first_rule_that_matches_counts() -> None:
    rules = [ClaimRule(profile="a", claim="groups", value="dev"), ClaimRule(profile="b", claim="scope", value="x")]
    settings = IssuerSettings(issuer="https://login.example", profiles=rules)
    assert settings.profile_of({"groups": ["dev"], "scope": "x"}) == "a"
    assert settings.profile_of({"groups": [], "scope": "y x"}) == "b"
    assert settings.profile_of({"scope": "xy"}) is None
    assert IssuerSettings(issuer="https://login.example", profiles=RULES).profile_of({}) == "everything"


@pytest.mark.parametrize("half", [{"claim": "scope"}, {"value": "x"}])
def test_half_a_rule_is_refused(half: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give both"):
        ClaimRule(profile="a", **half)
