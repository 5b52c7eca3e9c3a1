"""The stateless era: what every request carries, what a server offers, listening, and how life is proved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError, MCPError
from gaia.mcp.protocol.eras import ClientIdentity, OtherRevisions, ServerProfile, StatelessEra
from gaia.mcp.protocol.exchange import Exchange, NegotiatedProtocol, Notify, Send, SetProtocolVersion, drive

Json = dict[str, Any]
ERA = StatelessEra()
IDENTITY = ClientIdentity("tester", "1.2", {"elicitation": {"form": {}}})


class Server:
    """Answers each method with what is scripted, and records everything."""

    def __init__(self, **answers: Json | MCPError) -> None:
        self.sent: list[Send] = []
        self.told: list[Notify | SetProtocolVersion] = []
        self._answers = answers

    def request(self, send: Send) -> Json:
        self.sent.append(send)
        answer = self._answers[send.method.replace("/", "_")]
        if isinstance(answer, MCPError):
            raise answer
        return answer

    def run_exchange(self, exchange: Exchange[Any]) -> Any:
        return drive(exchange, self.request, self.told.append)


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


def profile_of(answer: Json) -> ServerProfile:
    profile = Server(server_discover=answer).run_exchange(ERA.open(IDENTITY))
    assert isinstance(profile, ServerProfile)
    return profile


class TestOpening:
    def test_what_every_request_carries_is_agreed_before_the_first_one(self) -> None:
        server = Server(server_discover=offer())
        server.run_exchange(ERA.open(IDENTITY))
        assert server.told == [
            SetProtocolVersion(
                NegotiatedProtocol(
                    "2026-07-28",
                    {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1.2"},
                        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
                    },
                    server_may_ask=False,
                )
            )
        ]
        assert server.sent == [Send("server/discover", {}, None)]

    def test_what_the_server_says_about_itself_is_kept(self) -> None:
        assert profile_of(offer(instructions="Be kind.")) == ServerProfile(
            protocol_version="2026-07-28",
            server_info={"name": "s", "version": "1"},
            capabilities={"tools": {"listChanged": True}},
            era=ERA,
            instructions="Be kind.",
        )

    @pytest.mark.parametrize("versions", [None, [], "2026-07-28", {}, 5, [None, 7]])
    def test_an_answer_without_versions_is_not_that_of_a_stateless_server(self, versions: Any) -> None:
        with pytest.raises(InvalidResponse, match="supported versions"):
            profile_of(offer(supportedVersions=versions))

    def test_a_server_that_offers_other_revisions_says_which(self) -> None:
        with pytest.raises(OtherRevisions, match="2025-11-25, 2031-01-01") as refusal:
            profile_of(offer(supportedVersions=["2025-11-25", "2031-01-01"]))
        assert refusal.value.supported == ["2025-11-25", "2031-01-01"]

    @pytest.mark.parametrize(
        ("data", "supported"),
        [({"supported": ["2027-01-01"]}, ["2027-01-01"]), ({}, []), (None, []), ("text", []), ({"supported": 5}, [])],
    )
    def test_so_does_one_that_refuses_our_revision(self, data: Any, supported: list[str]) -> None:
        with pytest.raises(OtherRevisions) as refusal:
            Server(server_discover=JsonRpcError(-32022, "no", data)).run_exchange(ERA.open(IDENTITY))
        assert refusal.value.supported == supported

    def test_any_other_error_is_passed_on(self) -> None:
        with pytest.raises(JsonRpcError, match="Method not found"):
            Server(server_discover=JsonRpcError(-32601, "Method not found")).run_exchange(ERA.open(IDENTITY))

    @pytest.mark.parametrize("member", ["capabilities", "_meta"])
    def test_what_is_no_object_is_refused_by_name(self, member: str) -> None:
        with pytest.raises(HandshakeFailed, match=f"{member} that is not an object"):
            profile_of(offer(**{member: "text"}))


class TestListening:
    def listening(self, capabilities: Json, *resources: str) -> list[Send]:
        server = Server(subscriptions_listen={})
        exchange = ERA.listen(profile_of(offer(capabilities=capabilities)), resources)
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


SILENCE = CallTimeout("silence")
ANSWERS: dict[str, Callable[[], Json | MCPError]] = {
    "a result": offer,
    "an error": lambda: JsonRpcError(-32603, "Internal error"),
    "an invalid result": lambda: InvalidResponse("the result is not an object"),
}


class TestLife:
    @pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
    def test_any_answer_is_a_sign_of_life(self, answer: Callable[[], Json | MCPError]) -> None:
        server = Server(server_discover=answer())
        server.run_exchange(ERA.ping(5.0))
        assert server.sent == [Send("server/discover", {}, 5.0)]
