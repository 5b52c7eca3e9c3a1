"""Which client a request comes from."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.clients_file import ClientEntry, ClientsFile, hash_of, new_token
from gaia.mcp.gateway.access.principal import ANONYMOUS, Pending, Principal
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.settings import ClaimRule, ClientLimits, GatewayLimits, IssuerSettings
from gaia.serving.guards import Refused
from tests.gateway.token_issuer import RESOURCE, SigningKey

TOKEN, OTHER = new_token(), new_token()
READER = Profile("reader", read_only=True)
PROFILES = {"everything": EVERYTHING, "reader": READER}
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()

OPEN = ClientsFile(anonymous=EVERYTHING)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def entry(token: str, profile: str = "everything", **values: datetime) -> ClientEntry:
    return ClientEntry(token=hash_of(token), profile=profile, **values)


def clients(**entries: ClientEntry) -> ClientsFile:
    return ClientsFile(clients=entries, profiles=PROFILES)


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + token.encode()}


def test_without_a_clients_file_each_request_may_do_everything(loop: asyncio.AbstractEventLoop) -> None:
    access = Access(OPEN, loop)
    assert access.authenticate({}, "/mcp") == ANONYMOUS
    assert access.metadata("/.well-known/oauth-protected-resource") is None


class TestTokens:
    def test_a_token_is_that_of_one_client(self, loop: asyncio.AbstractEventLoop) -> None:
        access = Access(clients(ann=entry(TOKEN), bob=entry(OTHER, "reader")), loop)
        found = access.authenticate(bearer(OTHER), "/mcp")
        assert found == Principal("bob")
        assert isinstance(found, Principal)
        assert found.profile is READER
        assert access.authenticate({b"authorization": b"bearer  " + TOKEN.encode() + b" "}, "/mcp") == Principal("ann")

    @pytest.mark.parametrize(
        ("headers", "challenge"),
        [
            ({}, 'Bearer realm="gaia-mcp"'),
            (bearer(new_token()), 'error="invalid_token"'),
            (bearer("a.b.c"), 'error="invalid_token"'),
            (bearer(hash_of(TOKEN)), 'error="invalid_token"'),
            (bearer(TOKEN + "x"), 'error="invalid_token"'),
            (bearer(""), 'error="invalid_request"'),
            (bearer("x" * 20_000), 'error="invalid_request"'),
            ({b"authorization": b"Basic " + TOKEN.encode()}, 'error="invalid_request"'),
            ({b"authorization": b"Bearer \xff\xfe.\xff.\xff"}, 'error="invalid_token"'),
        ],
    )
    def test_other_requests_are_refused(
        self, loop: asyncio.AbstractEventLoop, headers: dict[bytes, bytes], challenge: str
    ) -> None:
        refused = Access(clients(ann=entry(TOKEN)), loop).authenticate(headers, "/mcp")
        assert isinstance(refused, Refused)
        assert refused.status == 401
        header = dict(refused.headers)[b"www-authenticate"].decode()
        assert challenge in header
        assert TOKEN not in refused.message + header

    def test_a_token_expires(self, loop: asyncio.AbstractEventLoop) -> None:
        until = datetime(2026, 6, 1, 12, tzinfo=UTC)
        before = Access(clients(ann=entry(TOKEN, expires=until)), loop, now=lambda: NOON - 1)
        after = Access(clients(ann=entry(TOKEN, expires=until)), loop, now=lambda: NOON)
        assert before.authenticate(bearer(TOKEN), "/mcp") == Principal("ann")
        refused = after.authenticate(bearer(TOKEN), "/mcp")
        assert isinstance(refused, Refused)
        assert refused.message == "The token has expired"

    def test_a_wrong_token_is_not_anonymous(self, loop: asyncio.AbstractEventLoop) -> None:
        access = Access(ClientsFile(clients={"ann": entry(TOKEN)}, profiles=PROFILES, anonymous=READER), loop)
        found = access.authenticate({}, "/mcp")
        assert isinstance(found, Principal)
        assert found.profile is READER
        assert isinstance(access.authenticate(bearer(OTHER), "/mcp"), Refused)


class TestIssuers:
    def access(self, loop: asyncio.AbstractEventLoop) -> Access:
        issuer = IssuerSettings(issuer="https://login.example", profiles=[ClaimRule(profile="reader")])
        found = ClientsFile(
            clients={"ann": entry(TOKEN)}, issuers={"corp": issuer}, profiles=PROFILES, resource=RESOURCE
        )
        return Access(found, loop)

    def test_the_way_to_a_token_is_shown(self, loop: asyncio.AbstractEventLoop) -> None:
        access = self.access(loop)
        refused = access.authenticate({}, "/mcp")
        assert isinstance(refused, Refused)
        assert dict(refused.headers)[b"www-authenticate"] == (
            b'Bearer resource_metadata="https://gw.example/.well-known/oauth-protected-resource/mcp"'
        )
        document = access.metadata("/.well-known/oauth-protected-resource/mcp")
        assert document is not None
        assert b"https://login.example" in document

    def test_tokens_of_the_gateway_go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.access(loop).authenticate(bearer(TOKEN), "/mcp") == Principal("ann")

    def test_what_has_the_form_of_a_jwt_is_for_the_issuers(self, loop: asyncio.AbstractEventLoop) -> None:
        access = self.access(loop)
        refused = access.authenticate(bearer(SigningKey().token("https://other.example")), "/mcp")
        assert isinstance(refused, Refused)
        assert "of no issuer that is known here" in refused.message
        assert not isinstance(refused, Pending)


class TestChange:
    def test_a_client_that_was_removed_is_no_client_any_more(self, loop: asyncio.AbstractEventLoop) -> None:
        access = Access(clients(ann=entry(TOKEN), bob=entry(OTHER)), loop)
        ann = access.authenticate(bearer(TOKEN), "/mcp")
        bob = access.authenticate(bearer(OTHER), "/mcp")
        assert isinstance(ann, Principal)
        assert isinstance(bob, Principal)
        access.change(clients(bob=entry(new_token(), "reader")))
        assert not access.is_current(ann)
        assert not access.is_current(bob), "it has another profile"
        assert access.is_current(Principal("bob", READER))
        assert not access.is_current(ANONYMOUS)
        assert not access.is_current(Principal("corp/ann"))
        assert isinstance(access.authenticate(bearer(OTHER), "/mcp"), Refused), "its token was replaced"

    def test_a_stream_needs_a_token_that_would_be_accepted_now(self, loop: asyncio.AbstractEventLoop) -> None:
        now = [NOON]
        access = Access(clients(ann=entry(TOKEN), bob=entry(OTHER)), loop, lambda: now[0])
        ann, bob = access.authenticate(bearer(TOKEN), "/mcp"), access.authenticate(bearer(OTHER), "/mcp")
        assert isinstance(ann, Principal)
        assert isinstance(bob, Principal)
        assert access.admits(ann)
        assert Access(OPEN, loop).admits(ANONYMOUS)
        assert not access.admits(ANONYMOUS)
        expires = datetime.fromtimestamp(NOON + 60, UTC)
        access.change(clients(ann=entry(TOKEN, expires=expires), bob=entry(new_token())))
        assert access.is_current(bob)
        assert not access.admits(bob), "its token was replaced"
        assert access.admits(ann)
        now[0] += 60
        assert not access.admits(ann), "its token has expired"

    def test_a_stream_of_an_issuer_needs_the_same_issuer_and_a_token_that_has_not_expired(
        self, loop: asyncio.AbstractEventLoop
    ) -> None:
        access = TestIssuers().access(loop)
        settings = access._clients.issuers["corp"]
        ann = Principal("corp/ann", READER, settings, NOON + 60)
        access._now = lambda: NOON
        assert access.admits(ann)
        assert not access.admits(Principal("corp/ann", READER, settings, NOON))
        assert not access.admits(Principal("corp/ann", READER, None, NOON + 60))

    def test_calls_that_wait_do_so_for_the_limits_that_the_profile_has_now(
        self, loop: asyncio.AbstractEventLoop
    ) -> None:
        def limited(concurrent: int, **others: bool) -> ClientsFile:
            profile = Profile("reader", limits=ClientLimits(concurrent=concurrent), **others)
            return ClientsFile(clients={"ann": entry(TOKEN, "reader")}, profiles={"reader": profile})

        access = Access(limited(1), loop)
        ann = access.authenticate(bearer(TOKEN), "/mcp")
        assert isinstance(ann, Principal)
        started: list[object] = []
        refused: list[MCPError] = []
        for _ in range(4):
            access.limits.admit(ann, "time", "now", started.append, refused.append)
        assert len(started) == 1
        access.change(limited(2))
        assert len(started) == 2
        assert not refused
        access.change(limited(9, read_only=True))
        assert len(started) == 2, "they were allowed what the client may do no more"
        assert [error.delivery for error in refused] == ["not_sent"] * 2

    def test_limits_change_too(self, loop: asyncio.AbstractEventLoop) -> None:
        access = Access(clients(), loop)
        access.change(ClientsFile(limits=GatewayLimits(per_client=ClientLimits(concurrent=1))))
        started: list[object] = []
        for _ in range(2):
            access.limits.admit(Principal("ann"), "time", "now", started.append, started.append)
        assert len(started) == 1

    def test_issuers_come_and_go(self, loop: asyncio.AbstractEventLoop) -> None:
        access = TestIssuers().access(loop)
        assert access.is_current(Principal("corp/ann", READER))
        assert not access.is_current(Principal("corp/ann", Profile("gone")))
        access.change(clients(ann=entry(TOKEN)))
        assert access.metadata("/.well-known/oauth-protected-resource") is None
        assert not access.is_current(Principal("corp/ann", READER))


def test_profiles_are_found_by_name(loop: asyncio.AbstractEventLoop) -> None:
    access = Access(clients(), loop)
    assert access.profile("reader") is READER
    assert access.profile("other") is None
