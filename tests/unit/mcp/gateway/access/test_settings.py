"""The keys of limits and issuers in the clients file."""

import re
from typing import Any

import msgspec
import pytest

from gaia.mcp.gateway.access.settings import (
    CircuitSettings,
    ClaimRule,
    ClientLimits,
    GatewayLimits,
    IssuerSettings,
    Limit,
    claim_values,
    require_secure_url,
)

RULES = [{"profile": "everything"}]
ISSUER = {"issuer": "https://login.example", "profiles": RULES}


@pytest.mark.parametrize(
    ("kind", "document", "problem"),
    [
        (Limit, {"concurrent": 0}, r"`int` >= 1 - at `\$.concurrent`"),
        (Limit, {"concurrent": True}, "concurrent"),
        (Limit, {"perSecond": 0}, r">= 0\.001 - at `\$.perSecond`"),
        (Limit, {"perSecond": 1e7}, "perSecond"),
        (Limit, {"burst": 2}, "burst: means nothing without perSecond"),
        (Limit, {"answerBytes": -1}, "answerBytes"),
        (CircuitSettings, {"failures": 0}, "failures"),
        (CircuitSettings, {"window": 0}, "window"),
        (CircuitSettings, {"cooldown": -1}, "cooldown"),
        (ClientLimits, {"circuit": {}}, "perTool"),
        (ClientLimits, {"perServer": {"*": {"circuit": {}}}}, "perTool"),
        (GatewayLimits, {"perServer": {"*": {"circuit": {}}}}, "perTool"),
        (GatewayLimits, {"waiting": 0}, "waiting"),
        (GatewayLimits, {"waitingPerClient": 0}, "waitingPerClient"),
        (GatewayLimits, {"maxWait": 0}, "maxWait"),
        (GatewayLimits, {"maxWait": 1e9}, "maxWait"),
        (GatewayLimits, {"perClient": {"persecond": 5}}, "persecond"),
        (IssuerSettings, {"issuer": "http://login.example", "profiles": RULES}, "issuer: must be an https URL"),
        (IssuerSettings, {**ISSUER, "jwksUri": "ftp://login.example"}, "jwksUri"),
        (IssuerSettings, {**ISSUER, "profiles": []}, "profiles"),
        (IssuerSettings, {**ISSUER, "algorithms": ["none"]}, "'none' is none of"),
        (IssuerSettings, {**ISSUER, "algorithms": ["HS256"]}, "'HS256' is none of"),
        (IssuerSettings, {**ISSUER, "algorithms": []}, "algorithms"),
        (ClaimRule, {"profile": "a", "claim": "scope"}, "give both"),
        (ClaimRule, {"profile": "a", "value": "x"}, "give both"),
    ],
)
def test_unusable_values_are_refused(kind: Any, document: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(document, kind)


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (Limit, {"concurrent": 0}, "concurrent: Expected `int` >= 1"),
        (Limit, {"per_second": float("nan")}, "perSecond: Expected `float` >= 0.001"),
        (Limit, {"burst": 2}, "burst: means nothing without perSecond"),
        (ClientLimits, {"answer_bytes": "1"}, "answerBytes: Expected `int | null`, got `str`"),
        (CircuitSettings, {"window": 0}, "window: Expected `float` > 0.0"),
        (GatewayLimits, {"waiting_per_client": 0}, "waitingPerClient: Expected `int` >= 1"),
        (GatewayLimits, {"max_wait": 1e9}, "maxWait: Expected `float` <= 31536000.0"),
        (GatewayLimits, {"per_server": {"*": Limit(circuit=CircuitSettings())}}, "circuit: means nothing here"),
        (IssuerSettings, {"issuer": "https://a", "profiles": []}, "profiles: Expected `array` of length >= 1"),
        (ClaimRule, {"profile": None}, "profile: Expected `str`, got `null`"),
    ],
)
def test_settings_made_by_a_program_are_checked_as_those_of_a_file(
    kind: Any, values: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        kind(**values)


def test_keys_are_those_of_the_file_and_others_are_refused() -> None:
    limits = msgspec.json.decode(
        b'{"perClient": {"perSecond": 5, "perTool": {"x": {"circuit": {"failures": 2}}}}, "maxWait": 2}',
        type=GatewayLimits,
    )
    assert limits.per_client is not None
    assert limits.per_client.per_second == 5


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
    assert (
        IssuerSettings(issuer="https://login.example", profiles=[ClaimRule(profile="everything")]).profile_of({})
        == "everything"
    )
