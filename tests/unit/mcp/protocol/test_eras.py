"""The two eras: how an exchange opens, what requests carry, what is listed and told, and how life is proved."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError, MCPError, ServerCrashed
from gaia.mcp.protocol.eras import (
    HANDSHAKE_REVISIONS,
    ClientIdentity,
    Era,
    HandshakeEra,
    OtherRevisions,
    ServerProfile,
    StatelessEra,
    instructions_of,
    object_member,
)
from gaia.mcp.protocol.exchange import (
    NOT_NEGOTIATED,
    Exchange,
    NegotiatedProtocol,
    Notify,
    Send,
    SetProtocolVersion,
    drive,
)

Json = dict[str, Any]
HANDSHAKE, STATELESS = HandshakeEra(), StatelessEra()
IDENTITY = ClientIdentity("tester", "1.2", {"roots": {"listChanged": True}})


class Server:
    """Answers each method with what is scripted for it, a list page by page, and records everything."""

    def __init__(self, **answers: Json | MCPError | list[Json]) -> None:
        self.sent: list[Send] = []
        self.told: list[Notify | SetProtocolVersion] = []
        self._answers = answers

    def request(self, send: Send) -> Json:
        self.sent.append(send)
        answer = self._answers[send.method.replace("/", "_")]
        if isinstance(answer, MCPError):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer

    def run_exchange(self, exchange: Exchange[Any]) -> Any:
        return drive(exchange, self.request, self.told.append)


def greeting(**changes: Any) -> Json:
    """An answer to ``initialize``; a change to None removes the member."""
    answer = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
        **changes,
    }
    return {name: value for name, value in answer.items() if value is not None}


def offer(**changes: Any) -> Json:
    """An answer to ``server/discover``; a change to None removes the member."""
    answer = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {"tools": {"listChanged": True}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
        **changes,
    }
    return {name: value for name, value in answer.items() if value is not None}


def opened(era: Era, answer: Json) -> ServerProfile:
    """What is kept of a server that answers the first request like this."""
    profile = Server(initialize=answer, server_discover=answer).run_exchange(era.open(IDENTITY))
    assert isinstance(profile, ServerProfile)
    return profile


class TestOpeningAHandshake:
    def test_it_says_who_we_are_and_what_follows_is_of_the_revision_that_the_server_chose(self) -> None:
        server = Server(initialize=greeting())
        server.run_exchange(HANDSHAKE.open(IDENTITY))
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {"listChanged": True}},
            "clientInfo": {"name": "tester", "version": "1.2"},
        }
        assert server.sent == [Send("initialize", params)]
        assert server.told == [
            SetProtocolVersion(NOT_NEGOTIATED),
            SetProtocolVersion(NegotiatedProtocol("2025-06-18")),
            Notify("notifications/initialized"),
        ]

    @pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
    def test_every_revision_of_the_era_is_accepted(self, revision: str) -> None:
        assert opened(HANDSHAKE, greeting(protocolVersion=revision)).protocol_version == revision

    @pytest.mark.parametrize("revision", ["1.0.0", "2026-07-28", "2024-10-07", "", 5, ["2025-11-25"], {}])
    def test_any_other_is_refused_with_what_both_sides_speak_and_nothing_more_is_sent(self, revision: Any) -> None:
        server = Server(initialize=greeting(protocolVersion=revision))
        with pytest.raises(HandshakeFailed) as refusal:
            server.run_exchange(HANDSHAKE.open(IDENTITY))
        assert repr(revision) in str(refusal.value)
        assert all(spoken in str(refusal.value) for spoken in HANDSHAKE_REVISIONS)
        assert (len(server.sent), server.told) == (1, [SetProtocolVersion(NOT_NEGOTIATED)])

    def test_a_server_that_names_no_revision_is_taken_at_our_word(self) -> None:
        assert opened(HANDSHAKE, greeting(protocolVersion=None)).protocol_version == "2025-11-25"

    def test_what_is_missing_is_empty(self) -> None:
        profile = opened(HANDSHAKE, greeting(capabilities=None, serverInfo=None))
        assert (profile.capabilities, profile.server_info, profile.instructions) == ({}, {}, None)


class TestOpeningAStatelessOne:
    def test_what_every_request_carries_is_agreed_before_the_first_one(self) -> None:
        server = Server(server_discover=offer())
        server.run_exchange(STATELESS.open(IDENTITY))
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1.2"},
            "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
        }
        assert server.told == [SetProtocolVersion(NegotiatedProtocol("2026-07-28", meta, server_may_ask=False))]
        assert server.sent == [Send("server/discover", {}, None)]

    @pytest.mark.parametrize("versions", [None, [], "2026-07-28", {}, 5, [None, 7]])
    def test_an_answer_without_versions_is_not_that_of_a_stateless_server(self, versions: Any) -> None:
        with pytest.raises(InvalidResponse, match="supported versions"):
            opened(STATELESS, offer(supportedVersions=versions))

    def test_a_server_that_offers_other_revisions_says_which(self) -> None:
        with pytest.raises(OtherRevisions, match="2025-11-25, 2031-01-01") as refusal:
            opened(STATELESS, offer(supportedVersions=["2025-11-25", "2031-01-01"]))
        assert refusal.value.supported == ["2025-11-25", "2031-01-01"]

    @pytest.mark.parametrize(
        ("data", "supported"),
        [({"supported": ["2027-01-01"]}, ["2027-01-01"]), ({}, []), (None, []), ("text", []), ({"supported": 5}, [])],
    )
    def test_so_does_one_that_refuses_our_revision(self, data: Any, supported: list[str]) -> None:
        with pytest.raises(OtherRevisions) as refusal:
            Server(server_discover=JsonRpcError(-32022, "no", data)).run_exchange(STATELESS.open(IDENTITY))
        assert refusal.value.supported == supported


@pytest.mark.parametrize(
    ("era", "answer", "revision", "capabilities"),
    [
        (HANDSHAKE, greeting, "2025-06-18", {"tools": {}}),
        (STATELESS, offer, "2026-07-28", {"tools": {"listChanged": True}}),
    ],
)
def test_what_a_server_says_about_itself_is_kept(era: Era, answer: Any, revision: str, capabilities: Json) -> None:
    assert opened(era, answer(instructions="Be kind.")) == ServerProfile(
        protocol_version=revision,
        server_info={"name": "s", "version": "1"},
        capabilities=capabilities,
        era=era,
        instructions="Be kind.",
    )


@pytest.mark.parametrize(
    ("era", "answer", "member"),
    [
        (HANDSHAKE, greeting, "capabilities"),
        (HANDSHAKE, greeting, "serverInfo"),
        (STATELESS, offer, "capabilities"),
        (STATELESS, offer, "_meta"),
    ],
)
def test_what_is_no_object_is_refused_by_name(era: Era, answer: Any, member: str) -> None:
    with pytest.raises(HandshakeFailed, match=f"{member} that is not an object"):
        opened(era, answer(**{member: "text"}))


@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
def test_an_error_of_the_server_is_the_error_of_the_opening(era: Era) -> None:
    refusal = JsonRpcError(-32601, "Method not found")
    with pytest.raises(JsonRpcError, match="Method not found"):
        Server(initialize=refusal, server_discover=refusal).run_exchange(era.open(IDENTITY))


class TestListening:
    def listening(self, capabilities: Json, *resources: str) -> list[Send]:
        server = Server(subscriptions_listen={})
        exchange = STATELESS.listen(opened(STATELESS, offer(capabilities=capabilities)), resources)
        if exchange is not None:
            server.run_exchange(exchange)
        return server.sent

    def test_one_request_asks_for_all_that_the_server_can_tell_and_waits_for_ever(self) -> None:
        capabilities = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": False},
            "resources": {"listChanged": True},
        }
        wanted = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["file:///a"]}
        assert self.listening(capabilities, "file:///a") == [
            Send("subscriptions/listen", {"notifications": wanted}, math.inf)
        ]

    @pytest.mark.parametrize("capabilities", [{}, {"tools": {}}, {"tools": None}, {"tools": "text"}])
    def test_a_server_that_can_tell_nothing_is_not_asked(self, capabilities: Json) -> None:
        assert self.listening(capabilities) == []


class TestPing:
    @pytest.mark.parametrize("answer", [{}, JsonRpcError(-32601, "unknown"), InvalidResponse("no object")])
    def test_any_answer_is_enough_and_silence_is_confirmed_by_a_second_method(self, answer: Json | MCPError) -> None:
        server = Server(ping=answer)
        server.run_exchange(HANDSHAKE.ping(2.0))
        assert server.sent == [Send("ping", timeout=2.0)]
        server = Server(ping=CallTimeout("late"), tools_list=answer)
        server.run_exchange(HANDSHAKE.ping(2.0))
        assert [(send.method, send.timeout) for send in server.sent] == [("ping", 2.0), ("tools/list", 2.0)]

    def test_a_stateless_server_is_asked_what_it_offers(self) -> None:
        server = Server(server_discover=offer())
        server.run_exchange(STATELESS.ping(5.0))
        assert server.sent == [Send("server/discover", {}, 5.0)]

    def test_silence_on_both_is_a_timeout(self) -> None:
        with pytest.raises(CallTimeout, match="later"):
            Server(ping=CallTimeout("late"), tools_list=CallTimeout("later")).run_exchange(HANDSHAKE.ping(2.0))

    def test_a_connection_that_ends_is_not_an_answer(self) -> None:
        server = Server(ping=ServerCrashed("gone"))
        with pytest.raises(ServerCrashed):
            server.run_exchange(HANDSHAKE.ping(2.0))
        assert len(server.sent) == 1


class TestListing:
    def test_a_server_without_the_capability_is_not_asked(self) -> None:
        server = Server()
        assert server.run_exchange(HANDSHAKE.list_tools(opened(HANDSHAKE, greeting(capabilities={})))) == []
        assert server.sent == []

    @pytest.mark.parametrize("details", [{}, None, {"listChanged": True}])
    def test_the_capability_counts_whatever_its_details(self, details: Any) -> None:
        server = Server(tools_list=[{"tools": [1], "nextCursor": "a"}, {"tools": [2]}])
        profile = opened(HANDSHAKE, greeting(capabilities={"tools": details}))
        assert server.run_exchange(HANDSHAKE.list_tools(profile)) == [1, 2]


def test_texts_of_the_server_are_masked() -> None:
    before = opened(HANDSHAKE, greeting(serverInfo={"name": "my hunter22", "icons": [1]}, instructions="say hunter22"))
    after = before.masked(lambda text: text.replace("hunter22", "***"))
    assert (after.server_info, after.instructions) == ({"name": "my ***", "icons": [1]}, "say ***")
    assert before.instructions == "say hunter22"
    assert opened(HANDSHAKE, greeting()).masked(str.upper).instructions is None


@pytest.mark.parametrize("value", [None, [], {}, "", 0])
def test_what_is_empty_is_an_empty_object(value: Any) -> None:
    assert object_member({"capabilities": value}, "capabilities", "initialize") == {}
    assert object_member({}, "capabilities", "initialize") == {}


@pytest.mark.parametrize("value", [["tools"], "tools", 1, True])
def test_anything_else_fails_the_handshake_and_names_the_member(value: Any) -> None:
    with pytest.raises(HandshakeFailed, match="initialize has a capabilities that is not an object") as failure:
        object_member({"capabilities": value}, "capabilities", "initialize")
    assert failure.value.delivery == "unknown"


def test_an_object_that_is_too_large_fails_the_handshake() -> None:
    with pytest.raises(HandshakeFailed, match="initialize has a capabilities that is too large"):
        object_member({"capabilities": {"experimental": "x" * 2_000_000}}, "capabilities", "initialize")


def test_of_very_long_instructions_the_beginning_is_kept() -> None:
    assert instructions_of({"instructions": "x" * 1_000_000}) == "x" * 128 * 1024
    assert instructions_of({"instructions": 5}) is None
