"""When an issuer's keys are fetched, how long they are used, and how often a token can cause a fetch."""

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.gateway.access import issuer_keys
from gaia.mcp.gateway.access.issuer_keys import Done, IssuerKeys, KeysUnavailable, TokenRefused, fetch_keys
from gaia.mcp.gateway.access.settings import ClaimRule, IssuerSettings
from tests.gateway.fake_loop import FakeLoop
from tests.gateway.token_issuer import KeyServer, SigningKey

ONE, TWO = {"kid": "1", "kty": "EC"}, {"kid": "2", "kty": "EC"}


class Fetches:
    """Fetches that end when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Done] = []
        self.begun = 0

    def __call__(self, done: Done) -> None:
        self.begun += 1
        self.under_way.append(done)

    def end(self, *keys: dict[str, Any]) -> None:
        self.under_way.pop()(list(keys))

    def fail(self) -> None:
        self.under_way.pop()(KeysUnavailable("unreachable"))


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


@pytest.fixture
def keys(loop: FakeLoop, fetches: Fetches) -> IssuerKeys:
    return IssuerKeys("https://login.example", fetches, loop)


def fetched(keys: IssuerKeys, fetches: Fetches, *documents: dict[str, Any]) -> None:
    assert keys.candidates("1") is None
    fetches.end(*documents)


def test_the_first_token_has_them_fetched_once_and_all_that_came_meanwhile_wait(
    keys: IssuerKeys, fetches: Fetches
) -> None:
    told: list[int] = []
    assert fetches.begun == 0
    for number in range(3):
        assert keys.candidates("1") is None
        assert keys.when_fetched(lambda number=number: told.append(number))  # type: ignore[misc]
    assert fetches.begun == 1
    fetches.end(ONE)
    assert told == [0, 1, 2]
    assert keys.candidates("1") == [ONE]


def test_so_many_wait_and_no_more(keys: IssuerKeys) -> None:
    assert keys.candidates("1") is None
    assert all(keys.when_fetched(lambda: None) for _ in range(issuer_keys.MAX_WAITING))
    assert not keys.when_fetched(lambda: None)


def test_a_token_without_a_key_id_may_be_of_any_key_and_a_key_without_one_of_any_token(
    keys: IssuerKeys, fetches: Fetches
) -> None:
    nameless = {"kty": "EC"}
    fetched(keys, fetches, ONE, nameless)
    assert keys.candidates(None) == [ONE, nameless]
    assert keys.candidates("other") == [nameless]


def test_an_unknown_key_has_them_fetched_again_but_not_again_and_again(
    keys: IssuerKeys, fetches: Fetches, loop: FakeLoop
) -> None:
    fetched(keys, fetches, ONE)
    for number in range(100):
        with pytest.raises(TokenRefused) as raised:
            keys.candidates(f"made up {number}")
        assert raised.value.status == 401
    assert fetches.begun == 1
    loop.advance(issuer_keys.RETRY_SECONDS)
    assert keys.candidates("2") is None
    assert keys.candidates("1") == [ONE], "known keys are used meanwhile"
    generation = keys.generation
    fetches.end(ONE, TWO)
    assert keys.candidates("2") == [TWO]
    assert keys.generation == generation + 1


def test_old_keys_are_fetched_again_while_they_are_used_and_one_that_was_withdrawn_is_not(
    keys: IssuerKeys, fetches: Fetches, loop: FakeLoop
) -> None:
    fetched(keys, fetches, ONE)
    generation = keys.generation
    for begun, document in ((2, ONE), (3, TWO)):
        loop.advance(issuer_keys.REFRESH_SECONDS)
        assert keys.candidates("1") == [ONE]
        assert fetches.begun == begun
        assert keys.generation == generation, "the same keys"
        fetches.end(document)
    with pytest.raises(TokenRefused):
        keys.candidates("1")


def test_an_outage_of_the_issuer_is_bridged_for_a_while(keys: IssuerKeys, fetches: Fetches, loop: FakeLoop) -> None:
    fetched(keys, fetches, ONE)
    loop.advance(issuer_keys.MAX_AGE_SECONDS - 1)
    assert keys.candidates("1") == [ONE]
    fetches.fail()
    assert keys.candidates("1") == [ONE]
    loop.advance(1)
    with pytest.raises(TokenRefused, match="unreachable") as raised:
        keys.candidates("1")
    assert raised.value.status == 503
    loop.advance(issuer_keys.RETRY_FAILED_SECONDS)
    assert keys.candidates("1") is None
    fetches.end(ONE)
    assert keys.candidates("1") == [ONE]


def test_a_fetch_that_hangs_is_given_up_and_what_it_brings_later_left_aside(
    keys: IssuerKeys, fetches: Fetches, loop: FakeLoop
) -> None:
    told: list[str] = []
    assert keys.candidates("1") is None
    keys.when_fetched(lambda: told.append("given up"))
    loop.advance(issuer_keys.GIVE_UP_SECONDS)
    assert told == ["given up"]
    with pytest.raises(TokenRefused, match="no answer within"):
        keys.candidates("1")
    fetches.end(ONE)
    with pytest.raises(TokenRefused):
        keys.candidates("1")


OAUTH, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer() as server:
        yield server


def settings(server: KeyServer, path: str = "", **values: Any) -> IssuerSettings:
    return IssuerSettings(issuer=server.url + path, profiles=[ClaimRule(profile="everything")], **values)


def test_they_are_where_the_metadata_or_the_configuration_says(server: KeyServer) -> None:
    key = SigningKey()
    server.publish(key)
    assert fetch_keys(settings(server)) == [key.public]
    assert server.asked == [OAUTH, "/jwks"]
    server.answers["/own"] = {"keys": []}
    assert fetch_keys(settings(server, jwks_uri=server.url + "/own")) == []
    assert server.asked[2:] == ["/own"], "and nothing else is asked"


def test_an_issuer_of_openid_connect_with_a_path(server: KeyServer) -> None:
    server.answers["/realm" + OPENID] = {"issuer": f"{server.url}/realm", "jwks_uri": f"{server.url}/keys"}
    server.answers["/keys"] = {"keys": [{"kty": "EC"}, "no key"]}
    assert fetch_keys(settings(server, "/realm")) == [{"kty": "EC"}]
    assert server.asked == [OAUTH + "/realm", "/realm" + OPENID, "/keys"]


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
