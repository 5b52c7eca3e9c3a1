"""Which access tokens are trusted, the clients that they stand for, and what becomes of their requests."""

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import jwt
import pytest

from gaia.mcp.gateway.access import issuers as module
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.issuer_keys import MAX_WAITING, IssuerKeys, KeysUnavailable, TokenRefused
from gaia.mcp.gateway.access.issuers import (
    Issuer,
    Issuers,
    claimed_issuer,
    fetch_in_thread,
    signing_key_id,
    verified_claims,
)
from gaia.mcp.gateway.access.principal import Pending, Principal
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.access.settings import ClaimRule, IssuerSettings
from gaia.runtime.threads import DaemonPool
from gaia.serving.guards import Refused
from tests.gateway.fake_loop import FakeLoop
from tests.gateway.token_issuer import RESOURCE, KeyServer, SigningKey
from tests.unit.mcp.gateway.access.test_issuer_keys import Fetches
from tests.waiting import PATIENCE

ISSUER = URL = "https://login.example"
SETTINGS = IssuerSettings(issuer=ISSUER, profiles=[ClaimRule(profile="everything")])
KEY = SigningKey()


def judge(token: str, *keys: SigningKey, settings: IssuerSettings = SETTINGS) -> dict[str, Any]:
    signing_key_id(token, settings)
    return verified_claims(token, settings, [key.public for key in keys or (KEY,)], [RESOURCE])


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_a_good_token_has_its_claims(algorithm: str) -> None:
    key = SigningKey(algorithm=algorithm)
    token = key.token(ISSUER, aud=["other", RESOURCE])
    assert claimed_issuer(token) == ISSUER
    assert signing_key_id(token, SETTINGS) == "k1"
    others = (SigningKey(algorithm="RS256"), SigningKey())
    assert judge(token, *others, key)["sub"] == "ann", "each key that fits is tried"


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


READER = Profile("reader", read_only=True)


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


def test_claims_mean_a_client_and_its_profile_or_no_right(make: Make) -> None:
    issuer, *_ = make()
    principal = issuer.principal(KEY.token(URL, scope="mcp:read other"), [RESOURCE])
    assert principal == Principal("corp/ann")
    assert principal is not None
    assert principal.profile is READER
    with pytest.raises(TokenRefused, match="no right") as raised:
        issuer.principal(KEY.token(URL, scope="other"), [RESOURCE])
    assert raised.value.status == 403


@pytest.mark.parametrize("name", [None, "", "a\nb", "x" * 300, ["a", "b"]])
def test_another_claim_may_hold_the_name_and_one_that_cannot_be_shown_is_refused(make: Make, name: object) -> None:
    issuer, *_ = make(name_claim="client_id")
    assert issuer.principal(KEY.token(URL, scope="mcp:read", client_id="ci"), [RESOURCE]) == Principal("corp/ci")
    with pytest.raises(TokenRefused, match="it names no client"):
        issuer.principal(KEY.token(URL, scope="mcp:read", client_id=name), [RESOURCE])


def test_a_token_is_verified_once_for_each_audience(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, *_ = make()
    monkeypatch.setattr(module, "verified_claims", verified := Mock(wraps=verified_claims))
    token = KEY.token(URL, scope="mcp:read")
    first = issuer.principal(token, [RESOURCE])
    assert issuer.principal(token, [RESOURCE]) is first
    assert verified.call_count == 1
    with pytest.raises(TokenRefused, match="another resource"):
        issuer.principal(token, ["https://other.example"])


def test_what_was_verified_expires_with_the_token(make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, *_ = make()
    token = KEY.token(URL, scope="mcp:read")
    issuer.principal(token, [RESOURCE])
    clock.now += 601
    monkeypatch.setattr(module, "verified_claims", Mock(side_effect=TokenRefused("it has expired")))
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


class Subject:
    def __init__(self, before: Issuers | None = None, fetches: Fetches | None = None, **values: object) -> None:
        self.fetches = fetches or Fetches()
        rules = [ClaimRule(profile="everything", claim="scope", value="mcp")]
        settings = IssuerSettings(issuer=URL, profiles=rules, **values)  # type: ignore[arg-type]
        clients = ClientsFile(issuers={"corp": settings}, resource=RESOURCE)
        self.issuers = Issuers(clients, FakeLoop(), lambda _, done: self.fetches(done), before, time.time)

    def judge(self, path: str = "/mcp", issuer: str = URL, **claims: object) -> Principal | Refused | Pending:
        return self.issuers.judge(KEY.token(issuer, **{"scope": "mcp", **claims}), path)

    def judged(self, path: str = "/mcp", **claims: object) -> Principal | Refused:
        """The answer when the keys are there."""
        found = self.judge(path, **claims)
        if not isinstance(found, Pending):
            return found
        answers: list[Principal | Refused] = []
        found.then(answers.append)
        assert answers == []
        self.fetches.end(KEY.public)
        return answers[0]

    def refused(self, *path: str, **claims: object) -> tuple[int, str, str]:
        """The status, the message and the challenge of a request that is refused."""
        found = self.judge(*path, **claims) if "issuer" in claims else self.judged(*path, **claims)  # type: ignore[arg-type]
        assert isinstance(found, Refused)
        return found.status, found.message, dict(found.headers).get(b"www-authenticate", b"").decode()


def test_the_first_request_waits_for_the_keys_others_do_not_and_an_unknown_key_is_refused() -> None:
    subject = Subject()
    assert subject.judged() == subject.judge() == Principal("corp/ann")
    refused = subject.issuers.judge(SigningKey("other").token(URL, scope="mcp"), "/mcp")
    assert isinstance(refused, Refused)
    assert "no such key" in refused.message


def test_a_token_may_be_for_the_gateway_or_for_the_endpoint() -> None:
    subject = Subject(audience="api://gateway")
    for audience in (RESOURCE, RESOURCE + "/git", "api://gateway"):
        assert subject.judged("/mcp/git", aud=audience) == Principal("corp/ann")
    assert subject.refused("/mcp", aud=RESOURCE + "/git")[0] == 401


def test_a_bad_token_is_refused_with_where_to_get_a_good_one_and_one_that_gives_no_right_forbidden() -> None:
    status, message, challenge = Subject().refused("/mcp/git", exp=1)
    assert (status, message) == (401, "The token is refused: it has expired")
    assert 'error="invalid_token"' in challenge
    assert "/.well-known/oauth-protected-resource/mcp/git" in challenge
    status, _, challenge = Subject().refused(scope="other")
    assert (status, 'error="insufficient_scope"' in challenge) == (403, True)


def test_a_token_of_another_issuer_has_nothing_fetched() -> None:
    subject = Subject()
    assert subject.refused(issuer="https://evil.example")[0] == 401
    assert subject.fetches.begun == 0


def test_an_issuer_that_cannot_be_reached_is_no_fault_of_the_client() -> None:
    subject = Subject()
    pending = subject.judge()
    assert isinstance(pending, Pending)
    answers: list[Principal | Refused] = []
    pending.then(answers.append)
    subject.fetches.fail()
    [refused] = answers
    assert isinstance(refused, Refused)
    assert (refused.status, refused.headers) == (503, ((b"retry-after", b"5"),))
    again = subject.judge()
    assert isinstance(again, Refused)
    assert again.status == 503


def test_so_many_requests_wait_for_keys_and_no_more() -> None:
    subject = Subject()
    assert all(isinstance(subject.judge(), Pending) for _ in range(MAX_WAITING))
    refused = subject.judge()
    assert isinstance(refused, Refused)
    assert refused.status == 503


def test_keys_of_an_issuer_that_stays_the_same_are_kept() -> None:
    before = Subject()
    before.judged()
    same, other = Subject(before.issuers), Subject(before.issuers, algorithms=["ES256"])
    assert same.judge() == Principal("corp/ann")
    assert isinstance(other.judge(), Pending)


@pytest.mark.parametrize("is_published", [True, False])
async def test_keys_and_failures_come_from_a_thread_to_the_loop(is_published: bool) -> None:
    with KeyServer() as server:
        if is_published:
            server.publish(KEY)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[object] = loop.create_future()
        settings = IssuerSettings(issuer=server.url, profiles=[ClaimRule(profile="everything")])
        with contextlib.closing(DaemonPool("test-keys", 1)) as pool:
            fetch_in_thread(pool, loop, settings, result.set_result)
            found = await asyncio.wait_for(result, PATIENCE)
        assert found == [KEY.public] if is_published else isinstance(found, KeysUnavailable)
