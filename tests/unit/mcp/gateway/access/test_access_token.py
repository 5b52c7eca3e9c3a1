"""Which access tokens are trusted."""

import base64
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from gaia.mcp.gateway.access.issuer_keys import TokenRefused
from gaia.mcp.gateway.access.issuers import claimed_issuer, signing_key_id, verified_claims
from gaia.mcp.gateway.access.settings import ClaimRule, IssuerSettings
from tests.gateway.token_issuer import RESOURCE, SigningKey

ISSUER = "https://login.example"
SETTINGS = IssuerSettings(issuer=ISSUER, profiles=[ClaimRule(profile="everything")])
KEY = SigningKey()


def judge(token: str, *keys: SigningKey, settings: IssuerSettings = SETTINGS) -> dict[str, Any]:
    signing_key_id(token, settings)
    return verified_claims(token, settings, [key.public for key in keys or (KEY,)], [RESOURCE])


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_a_good_token_has_its_claims(algorithm: str) -> None:
    key = SigningKey(algorithm=algorithm)
    token = key.token(ISSUER)
    assert claimed_issuer(token) == ISSUER
    assert signing_key_id(token, SETTINGS) == "k1"
    assert judge(token, key)["sub"] == "ann"


def test_the_audience_may_be_one_of_several() -> None:
    assert judge(KEY.token(ISSUER, aud=["other", RESOURCE]))["sub"] == "ann"


def test_each_key_that_fits_is_tried() -> None:
    assert judge(KEY.token(ISSUER), SigningKey(algorithm="RS256"), SigningKey(), KEY)["sub"] == "ann"


def changed(token: str) -> str:
    head, body, signature = token.split(".")
    return ".".join((head, body[:-2] + ("AA" if body[-2:] != "AA" else "BB"), signature))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: KEY.token(ISSUER, exp=int(time.time()) - 60), "it has expired"),
        (lambda: KEY.token(ISSUER, nbf=int(time.time()) + 60), "it is not valid"),
        (lambda: KEY.token(ISSUER, exp=None), "it is not valid"),
        (lambda: KEY.token(ISSUER, exp=10**400), "it is not valid"),
        (lambda: KEY.token(ISSUER, exp=float("inf")), "it is not valid"),
        (lambda: KEY.token(ISSUER, nbf=float("inf")), "it is not valid"),
        (lambda: KEY.token(ISSUER, aud="https://other.example/mcp"), "it was issued for another resource"),
        (lambda: KEY.token(ISSUER, aud=None), "it is not valid"),
        (lambda: KEY.token("https://other.example"), "it is not valid"),
        (lambda: SigningKey().token(ISSUER), "it is signed with another key"),
        (lambda: SigningKey(algorithm="RS256").token(ISSUER), "it is signed with another key"),
        (lambda: changed(KEY.token(ISSUER)), "it is signed with another key"),
        (lambda: KEY.token(ISSUER, headers={"typ": "logout+jwt"}), "it is no access token"),
        (lambda: KEY.token(ISSUER, headers={"crit": ["x"], "x": 1}), "it is"),
        (lambda: jwt.encode({"iss": ISSUER, "aud": RESOURCE}, "s" * 32, "HS256"), "its algorithm is not one"),
        (lambda: jwt.encode({"iss": ISSUER, "aud": RESOURCE}, None, "none"), "its algorithm is not one"),
        (lambda: "a.b.c", "it is no JWT"),
    ],
)
def test_other_tokens_are_refused_and_nothing_of_them_is_shown(make: Callable[[], str], reason: str) -> None:
    token = make()
    with pytest.raises(TokenRefused) as raised:
        judge(token)
    assert str(raised.value).startswith(reason)
    assert token.split(".")[1] not in str(raised.value)


def test_a_public_key_is_no_shared_secret() -> None:
    """The oldest attack on JWTs: the public key as the secret of HS256."""
    token = KEY.token(ISSUER)
    with pytest.raises(TokenRefused, match="algorithm"):
        judge(token, settings=IssuerSettings(issuer=ISSUER, profiles=SETTINGS.profiles, algorithms=["RS256"]))


def test_keys_for_something_else_are_left_aside() -> None:
    for other in ({"use": "enc"}, {"alg": "ES384"}, {"kty": "oct", "k": "AAAA"}):
        with pytest.raises(TokenRefused, match="another key"):
            verified_claims(KEY.token(ISSUER), SETTINGS, [{**KEY.public, **other}], [RESOURCE])
    with pytest.raises(TokenRefused, match="cannot be used"):
        verified_claims(KEY.token(ISSUER), SETTINGS, [{**KEY.public, "x": "AA"}], [RESOURCE])


DEEP = base64.urlsafe_b64encode(b"[" * 9_000).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "token",
    ["", "a.b.c", f"{DEEP}.e30.e30", f"eyJhbGciOiJFUzI1NiJ9.{DEEP}.e30", jwt.encode({"x": 1}, "s" * 32, "HS256")],
)
def test_what_names_no_issuer_has_none(token: str) -> None:
    assert claimed_issuer(token) is None
