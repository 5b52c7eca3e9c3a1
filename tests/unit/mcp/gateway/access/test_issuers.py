"""What becomes of requests with access tokens, while keys are fetched and after that."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.issuer_keys import MAX_WAITING, KeysUnavailable
from gaia.mcp.gateway.access.issuers import Issuers, fetch_in_thread
from gaia.mcp.gateway.access.principal import Pending, Principal
from gaia.mcp.gateway.access.settings import ClaimRule, IssuerSettings
from gaia.runtime.threads import DaemonPool
from gaia.serving.guards import Refused
from tests.gateway.fake_loop import FakeLoop
from tests.gateway.token_issuer import RESOURCE, KeyServer, SigningKey
from tests.unit.mcp.gateway.access.test_issuer_keys import Fetches
from tests.waiting import PATIENCE

URL = "https://login.example"
KEY = SigningKey()


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


def test_the_first_request_waits_for_the_keys_and_others_do_not() -> None:
    subject = Subject()
    assert subject.judged() == Principal("corp/ann")
    assert subject.judge() == Principal("corp/ann")


def test_a_token_may_be_for_the_gateway_or_for_the_endpoint() -> None:
    subject = Subject(audience="api://gateway")
    for audience in (RESOURCE, RESOURCE + "/git", "api://gateway"):
        assert subject.judged("/mcp/git", aud=audience) == Principal("corp/ann")
    refused = subject.judged("/mcp", aud=RESOURCE + "/git")
    assert isinstance(refused, Refused)
    assert refused.status == 401


def test_a_bad_token_is_refused_with_where_to_get_a_good_one() -> None:
    refused = Subject().judged("/mcp/git", exp=1)
    assert isinstance(refused, Refused)
    assert refused.status == 401
    assert refused.message == "The token is refused: it has expired"
    header = dict(refused.headers)[b"www-authenticate"].decode()
    assert 'error="invalid_token"' in header
    assert "/.well-known/oauth-protected-resource/mcp/git" in header


def test_claims_that_give_no_right_are_forbidden() -> None:
    refused = Subject().judged(scope="other")
    assert isinstance(refused, Refused)
    assert refused.status == 403
    header = dict(refused.headers)[b"www-authenticate"].decode()
    assert 'error="insufficient_scope"' in header


def test_a_token_of_another_issuer_has_nothing_fetched() -> None:
    subject = Subject()
    refused = subject.judge(issuer="https://evil.example")
    assert isinstance(refused, Refused)
    assert refused.status == 401
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


def test_an_unknown_key_is_refused() -> None:
    subject = Subject()
    subject.judged()
    refused = subject.issuers.judge(SigningKey("other").token(URL, scope="mcp"), "/mcp")
    assert isinstance(refused, Refused)
    assert "no such key" in refused.message


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


class TestInThread:
    @pytest.fixture
    def server(self) -> Iterator[KeyServer]:
        with KeyServer() as server:
            yield server

    def fetch(self, url: str) -> object:
        async def main() -> object:
            loop = asyncio.get_running_loop()
            result: asyncio.Future[object] = loop.create_future()
            pool = DaemonPool("test-keys", 1)
            fetch_in_thread(pool, loop, self.settings(url), result.set_result)
            try:
                return await asyncio.wait_for(result, PATIENCE)
            finally:
                pool.close()

        return asyncio.run(main())

    def settings(self, url: str) -> IssuerSettings:
        return IssuerSettings(issuer=url, profiles=[ClaimRule(profile="everything")])

    def test_keys_come_to_the_loop(self, server: KeyServer) -> None:
        server.publish(KEY)
        assert self.fetch(server.url) == [KEY.public]

    def test_failures_too(self, server: KeyServer) -> None:
        result = self.fetch(server.url)
        assert isinstance(result, KeysUnavailable)
