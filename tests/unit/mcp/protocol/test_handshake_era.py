"""The handshake era: how a exchange opens, what is listed, and how life is proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError, MCPError
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, ClientIdentity, HandshakeEra, ServerProfile
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
ERA = HandshakeEra()
IDENTITY = ClientIdentity("tester", "1.2", {"roots": {"listChanged": True}})


class Server:
    """Answers each method with what is scripted, and records everything."""

    def __init__(self, **answers: Json | MCPError) -> None:
        self.seen: list[Send | Notify] = []
        self.dialects: list[NegotiatedProtocol] = []
        self._answers = answers

    def request(self, send: Send) -> Json:
        self.seen.append(send)
        answer = self._answers[send.method.replace("/", "_")]
        if isinstance(answer, MCPError):
            raise answer
        return answer

    def run_exchange(self, exchange: Exchange[Any]) -> Any:
        return drive(exchange, self.request, self.tell)

    def tell(self, step: Notify | SetProtocolVersion) -> None:
        if isinstance(step, SetProtocolVersion):
            self.dialects.append(step.protocol)
        else:
            self.seen.append(step)

    @property
    def methods(self) -> list[str]:
        return [step.method for step in self.seen]


def hello(**changes: Any) -> Json:
    """An answer to ``initialize``; a change to None removes the member."""
    answer = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
        **changes,
    }
    return {name: value for name, value in answer.items() if value is not None}


def profile_of(answer: Json) -> ServerProfile:
    profile = Server(initialize=answer).run_exchange(ERA.open(IDENTITY))
    assert isinstance(profile, ServerProfile)
    return profile


class TestOpening:
    def test_it_offers_the_newest_revision_and_says_who_we_are(self) -> None:
        server = Server(initialize=hello())
        server.run_exchange(ERA.open(IDENTITY))
        initialize = server.seen[0]
        assert initialize == Send(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"roots": {"listChanged": True}},
                "clientInfo": {"name": "tester", "version": "1.2"},
            },
        )

    def test_it_ends_with_the_notification_that_calls_may_come(self) -> None:
        server = Server(initialize=hello())
        server.run_exchange(ERA.open(IDENTITY))
        assert server.seen[1:] == [Notify("notifications/initialized")]

    def test_what_the_server_says_about_itself_is_kept(self) -> None:
        assert profile_of(hello(instructions="Be kind.")) == ServerProfile(
            protocol_version="2025-06-18",
            server_info={"name": "s", "version": "1"},
            capabilities={"tools": {}},
            era=ERA,
            instructions="Be kind.",
        )

    def test_what_follows_is_of_the_revision_that_the_server_chose(self) -> None:
        server = Server(initialize=hello())
        server.run_exchange(ERA.open(IDENTITY))
        assert server.dialects == [NOT_NEGOTIATED, NegotiatedProtocol("2025-06-18")]

    @pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
    def test_every_revision_of_the_era_is_accepted(self, revision: str) -> None:
        assert profile_of(hello(protocolVersion=revision)).protocol_version == revision

    @pytest.mark.parametrize("revision", ["1.0.0", "2026-07-28", "2024-10-07", "", 5, ["2025-11-25"], {}])
    def test_any_other_is_refused_with_what_both_sides_speak_and_nothing_more_is_sent(self, revision: Any) -> None:
        server = Server(initialize=hello(protocolVersion=revision))
        with pytest.raises(HandshakeFailed) as refusal:
            server.run_exchange(ERA.open(IDENTITY))
        assert repr(revision) in str(refusal.value)
        assert all(spoken in str(refusal.value) for spoken in HANDSHAKE_REVISIONS)
        assert server.methods == ["initialize"]

    def test_a_server_that_names_no_revision_is_taken_at_our_word(self) -> None:
        assert profile_of(hello(protocolVersion=None)).protocol_version == "2025-11-25"

    @pytest.mark.parametrize("empty", [None, [], {}])
    @pytest.mark.parametrize("member", ["capabilities", "serverInfo"])
    def test_what_is_missing_or_empty_is_an_empty_object(self, member: str, empty: Any) -> None:
        answer = {**hello(), member: empty}
        profile = profile_of(answer)
        assert {"capabilities": profile.capabilities, "serverInfo": profile.server_info}[member] == {}

    @pytest.mark.parametrize("wrong", ["text", 5, ["tools"]])
    @pytest.mark.parametrize("member", ["capabilities", "serverInfo"])
    def test_what_is_no_object_is_refused_by_name(self, member: str, wrong: Any) -> None:
        with pytest.raises(HandshakeFailed, match=f"{member} that is not an object"):
            profile_of(hello(**{member: wrong}))

    def test_instructions_that_are_no_text_are_none(self) -> None:
        assert profile_of(hello(instructions=["Be", "kind"])).instructions is None

    def test_an_error_of_the_server_is_the_error_of_the_opening(self) -> None:
        refusal = JsonRpcError(-32602, "Unsupported protocol version")
        with pytest.raises(JsonRpcError, match="Unsupported"):
            Server(initialize=refusal).run_exchange(ERA.open(IDENTITY))


SILENCE = CallTimeout("silence")
ANSWERS: dict[str, Callable[[], Json | MCPError]] = {
    "a result": dict,
    "an error": lambda: JsonRpcError(-32601, "Method not found"),
    "an invalid result": lambda: InvalidResponse("the result of ping is not an object"),
}
