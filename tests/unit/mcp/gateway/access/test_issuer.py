"""The clients that an issuer's access tokens stand for."""

import time
from collections.abc import Callable

import pytest

from gaia.mcp.gateway.access import issuers as module
from gaia.mcp.gateway.access.issuer_keys import IssuerKeys, TokenRefused
from gaia.mcp.gateway.access.issuers import Issuer
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.access.settings import ClaimRule, IssuerSettings
from tests.gateway.fake_loop import FakeLoop
from tests.gateway.token_issuer import RESOURCE, SigningKey
from tests.unit.mcp.gateway.access.test_issuer_keys import Fetches

URL = "https://login.example"
READER = Profile("reader", read_only=True)
KEY = SigningKey()


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[..., tuple[Issuer, Fetches, FakeLoop]]:
    def make(**values: str) -> tuple[Issuer, Fetches, FakeLoop]:
        fetches, loop = Fetches(), FakeLoop()
        rules = [ClaimRule(profile="reader", claim="scope", value="mcp:read")]
        settings = IssuerSettings(issuer=URL, profiles=rules, **values)  # type: ignore[arg-type]
        keys = IssuerKeys(URL, fetches, loop)
        issuer = Issuer("corp", settings, {"reader": READER}, keys, clock)
        assert issuer.principal(KEY.token(URL, scope="mcp:read"), [RESOURCE]) is None
        fetches.end(KEY.public)
        return issuer, fetches, loop

    return make


Make = Callable[..., tuple[Issuer, Fetches, FakeLoop]]


def test_claims_mean_a_client_and_its_profile(make: Make) -> None:
    issuer, *_ = make()
    principal = issuer.principal(KEY.token(URL, scope="mcp:read other"), [RESOURCE])
    assert principal == Principal("corp/ann")
    assert principal is not None
    assert principal.profile is READER


def test_another_claim_may_hold_the_name(make: Make) -> None:
    issuer, *_ = make(name_claim="client_id")
    assert issuer.principal(KEY.token(URL, scope="mcp:read", client_id="ci"), [RESOURCE]) == Principal("corp/ci")


@pytest.mark.parametrize("name", [None, "", "a\nb", "x" * 300, ["a", "b"]])
def test_a_name_that_cannot_be_shown_is_refused(make: Make, name: object) -> None:
    issuer, *_ = make(name_claim="client_id")
    with pytest.raises(TokenRefused, match="it names no client"):
        issuer.principal(KEY.token(URL, scope="mcp:read", client_id=name), [RESOURCE])


def test_claims_without_a_profile_give_no_right(make: Make) -> None:
    issuer, *_ = make()
    with pytest.raises(TokenRefused, match="no right") as raised:
        issuer.principal(KEY.token(URL, scope="other"), [RESOURCE])
    assert raised.value.status == 403


def test_a_token_is_verified_once_for_each_audience(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, *_ = make()
    verified: list[list[str]] = []
    real = module.verified_claims

    def counted(token: str, settings: IssuerSettings, keys: object, audiences: list[str]) -> object:
        verified.append(audiences)
        return real(token, settings, keys, audiences)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "verified_claims", counted)
    token = KEY.token(URL, scope="mcp:read")
    first = issuer.principal(token, [RESOURCE])
    assert issuer.principal(token, [RESOURCE]) is first
    assert len(verified) == 1
    with pytest.raises(TokenRefused, match="another resource"):
        issuer.principal(token, ["https://other.example"])


def test_what_was_verified_expires_with_the_token(make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, *_ = make()
    token = KEY.token(URL, scope="mcp:read")
    issuer.principal(token, [RESOURCE])
    clock.now += 601

    def expired(*_: object) -> object:
        raise TokenRefused("it has expired")

    monkeypatch.setattr(module, "verified_claims", expired)
    with pytest.raises(TokenRefused, match="expired"):
        issuer.principal(token, [RESOURCE])


def test_a_verified_token_has_the_keys_fetched_again_too(make: Make) -> None:
    issuer, fetches, loop = make()
    token = KEY.token(URL, scope="mcp:read", exp=int(time.time()) + 10**6)
    issuer.principal(token, [RESOURCE])
    loop.advance(600)
    issuer.principal(token, [RESOURCE])
    fetches.end(SigningKey("k2").public)
    with pytest.raises(TokenRefused, match="no such key"):
        issuer.principal(token, [RESOURCE])


def test_what_was_verified_with_a_key_that_was_withdrawn_is_not_believed(make: Make) -> None:
    issuer, fetches, loop = make()
    token = KEY.token(URL, scope="mcp:read")
    issuer.principal(token, [RESOURCE])
    loop.advance(600)
    other = SigningKey("k2")
    assert issuer.keys.candidates("k1"), "which has them fetched again"
    fetches.end({**other.public, "kid": "k1"})
    with pytest.raises(TokenRefused, match="another key"):
        issuer.principal(token, [RESOURCE])


def test_a_bounded_number_is_remembered(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_VERIFIED", 2)
    issuer, *_ = make()
    for number in range(5):
        issuer.principal(KEY.token(URL, scope="mcp:read", jti=str(number)), [RESOURCE])
    assert len(issuer._verified) == 2
