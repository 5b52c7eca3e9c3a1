"""Which era a server speaks: what counts as evidence, what is remembered, and what a configuration insists on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import (
    AnswerLost,
    CallTimeout,
    HandshakeFailed,
    HttpError,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    NeedsAuthorization,
    ServerCrashed,
)
from gaia.mcp.protocol.eras import ClientIdentity, ServerProfile
from gaia.mcp.protocol.exchange import Notify, Send, SetProtocolVersion, drive
from gaia.mcp.protocol.negotiation import PROTOCOLS, Negotiation

Json = dict[str, Any]
Answer = Json | MCPError
IDENTITY = ClientIdentity("tester", "1")


def discovery(*versions: str) -> Json:
    return {"supportedVersions": list(versions or ("2026-07-28",)), "capabilities": {"tools": {}}}


def greeting(version: str = "2025-11-25") -> Json:
    return {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s"}}


def unsupported(*supported: str) -> JsonRpcError:
    return JsonRpcError(-32022, "Unsupported protocol version", {"supported": list(supported), "requested": "x"})


class Server:
    """Answers each method in turn with what is scripted for it; the last answer stays."""

    def __init__(self, discover: list[Answer], initialize: list[Answer] | None = None) -> None:
        self.sent: list[Send] = []
        self.revision: str | None = None
        self._answers = {"server/discover": discover, "initialize": initialize or [greeting()]}

    @property
    def methods(self) -> list[str]:
        return [send.method for send in self.sent]

    def open(self, negotiation: Negotiation) -> ServerProfile:
        return drive(negotiation.open(IDENTITY), self._answer, self._told)

    def _answer(self, send: Send) -> Json:
        self.sent.append(send)
        answers = self._answers[send.method]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, MCPError):
            raise answer
        return answer

    def _told(self, step: Notify | SetProtocolVersion) -> None:
        if isinstance(step, SetProtocolVersion):
            self.revision = step.protocol.revision


NOT_STATELESS: dict[str, Callable[[], Answer]] = {
    "method not found": lambda: JsonRpcError(-32601, "Method not found"),
    "invalid params": lambda: JsonRpcError(-32602, "Invalid request parameters"),
    "any other code": lambda: JsonRpcError(-1, "Please initialize first"),
    "silence": lambda: CallTimeout("silence"),
    "an empty object": dict,
    "something else": lambda: {"supportedVersions": "all of them"},
    "not an object": lambda: InvalidResponse("the result is not an object"),
    "an HTTP refusal": lambda: HttpError("the server answered 404 Not Found", status=404),
    "a broken connection": lambda: AnswerLost("the connection broke before the answer"),
}


class TestProbing:
    def test_a_discovery_is_stateless_and_the_probe_has_a_deadline_of_its_own(self) -> None:
        server = Server([discovery()])
        assert server.open(Negotiation(probe_timeout=1.5)).protocol_version == "2026-07-28"
        assert [(send.method, send.timeout) for send in server.sent] == [("server/discover", 1.5)]
        assert server.revision == "2026-07-28"

    @pytest.mark.parametrize("answer", NOT_STATELESS.values(), ids=NOT_STATELESS)
    def test_anything_else_is_the_handshake_era(self, answer: Callable[[], Answer]) -> None:
        server = Server([answer()])
        assert server.open(Negotiation()).protocol_version == "2025-11-25"
        assert server.methods == ["server/discover", "initialize"]
        assert server.revision == "2025-11-25"

    @pytest.mark.parametrize("answer", [discovery("2025-11-25", "2025-06-18"), unsupported("2025-11-25")])
    def test_a_stateless_server_of_older_revisions_is_greeted(self, answer: Answer) -> None:
        server = Server([answer])
        assert server.open(Negotiation()).protocol_version == "2025-11-25"

    @pytest.mark.parametrize("answer", [discovery("2031-01-01"), unsupported("2031-01-01"), unsupported()])
    def test_one_of_unknown_revisions_is_never_greeted(self, answer: Answer) -> None:
        server = Server([answer])
        with pytest.raises(HandshakeFailed, match="this client speaks 2026-07-28, 2025-11-25"):
            server.open(Negotiation())
        assert server.methods == ["server/discover"]

    def test_a_refusal_of_what_the_server_supports_is_one_for_good_the_second_time(self) -> None:
        server = Server([unsupported("2026-07-28"), discovery()])
        assert server.open(Negotiation()).protocol_version == "2026-07-28"
        assert server.methods == ["server/discover"] * 2
        with pytest.raises(HandshakeFailed, match="speaks 2026-07-28"):
            Server([unsupported("2026-07-28")]).open(Negotiation())

    @pytest.mark.parametrize(
        "error",
        [
            lambda: JsonRpcError(-32020, "only a stateless server has it"),
            lambda: JsonRpcError(-32021, "only a stateless server has it"),
            lambda: NeedsAuthorization("it wants a login", status=401),
        ],
    )
    def test_some_errors_are_not_answered_with_a_greeting(self, error: Callable[[], MCPError]) -> None:
        server = Server([error()])
        with pytest.raises(type(error()), match="it"):
            server.open(Negotiation())
        assert server.methods == ["server/discover"]

    @pytest.mark.parametrize("late", [unsupported("2026-07-28"), JsonRpcError(-32601, "Method not found")])
    def test_a_slow_start_is_not_taken_for_the_handshake_era(self, late: MCPError) -> None:
        server = Server([CallTimeout("silence"), discovery()], [late])
        assert server.open(Negotiation()).protocol_version == "2026-07-28"
        assert server.methods == ["server/discover", "initialize", "server/discover"]

    def test_a_server_that_refuses_both_greetings_is_refused(self) -> None:
        server = Server([JsonRpcError(-32601, "Method not found")], [JsonRpcError(-32603, "broken")])
        with pytest.raises(JsonRpcError, match="broken"):
            server.open(Negotiation())
        assert server.methods == ["server/discover", "initialize"]

    def test_refusing_the_greeting_for_its_version_is_evidence_too(self) -> None:
        server = Server([JsonRpcError(-32000, "starting"), discovery()], [unsupported("2026-07-28")])
        assert server.open(Negotiation()).protocol_version == "2026-07-28"


class TestMemory:
    @pytest.mark.parametrize(
        ("first", "sent"),
        [
            (Server([JsonRpcError(-32601, "no")]), "initialize"),
            (Server([discovery()]), "server/discover"),
        ],
    )
    def test_a_known_server_is_not_probed_and_gets_the_whole_time_there_is(self, first: Server, sent: str) -> None:
        negotiation = Negotiation()
        first.open(negotiation)
        again = Server([discovery()])
        again.open(negotiation)
        assert [(send.method, send.timeout) for send in again.sent] == [(sent, None)]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Server([JsonRpcError(-32601, "no")]), Server([discovery()], [JsonRpcError(-32601, "no")])),
            (Server([discovery()]), Server([JsonRpcError(-32601, "no")])),
        ],
    )
    def test_what_fails_is_probed_again(self, first: Server, second: Server) -> None:
        negotiation = Negotiation()
        first.open(negotiation)
        with pytest.raises(JsonRpcError):
            second.open(negotiation)
        third = Server([discovery()])
        third.open(negotiation)
        assert third.sent[0].timeout == 5.0

    def test_a_known_server_that_has_become_stateless_is_understood_at_once(self) -> None:
        negotiation = Negotiation()
        Server([JsonRpcError(-32601, "no")]).open(negotiation)
        updated = Server([discovery()], [unsupported("2026-07-28")])
        assert updated.open(negotiation).protocol_version == "2026-07-28"


def test_a_server_that_dies_of_the_probe_is_greeted_next_time_and_gets_no_third_chance() -> None:
    negotiation = Negotiation()
    with pytest.raises(ServerCrashed):
        Server([ServerCrashed("gone")]).open(negotiation)
    assert negotiation.retry_with_initialize()
    again = Server([ServerCrashed("gone")])
    assert again.open(negotiation).protocol_version == "2025-11-25"
    assert again.methods == ["initialize"]


@pytest.mark.parametrize(
    ("protocol", "servers"),
    [
        ("auto", [Server([ServerCrashed("gone")]), Server([discovery()], [ServerCrashed("gone")])]),
        ("auto", [Server([JsonRpcError(-32601, "no")], [ServerCrashed("gone")])]),
        ("modern", [Server([ServerCrashed("gone")])]),
    ],
    ids=["of both", "of the greeting after it survived the probe", "of the era that is configured"],
)
def test_one_that_dies_otherwise_is_not(protocol: str, servers: list[Server]) -> None:
    negotiation = Negotiation(protocol)
    for number, server in enumerate(servers):
        assert not number or negotiation.retry_with_initialize()
        with pytest.raises(ServerCrashed):
            server.open(negotiation)
    assert not negotiation.retry_with_initialize()


class TestInsisting:
    def test_legacy_is_never_probed(self) -> None:
        server = Server([discovery()])
        assert server.open(Negotiation("legacy")).protocol_version == "2025-11-25"
        assert server.methods == ["initialize"]

    @pytest.mark.parametrize("protocol", ["modern", "2026-07-28"])
    def test_modern_is_never_greeted(self, protocol: str) -> None:
        server = Server([JsonRpcError(-32601, "Method not found")])
        with pytest.raises(HandshakeFailed, match="insists on '2026-07-28'; set protocol to 'auto'"):
            server.open(Negotiation(protocol))
        assert server.methods == ["server/discover"]

    def test_modern_passes_other_errors_on_and_says_what_the_server_speaks_instead(self) -> None:
        with pytest.raises(JsonRpcError, match="not today"):
            Server([JsonRpcError(-32000, "not today")]).open(Negotiation("modern"))
        with pytest.raises(HandshakeFailed, match="the server speaks 2025-11-25; this client speaks 2026-07-28"):
            Server([discovery("2025-11-25")]).open(Negotiation("modern"))

    def test_a_revision_is_offered_and_accepted_and_another_one_refused(self) -> None:
        server = Server([discovery()], [greeting("2025-03-26")])
        assert server.open(Negotiation("2025-03-26")).protocol_version == "2025-03-26"
        assert (server.sent[0].params or {})["protocolVersion"] == "2025-03-26"
        with pytest.raises(HandshakeFailed, match="insists on '2025-03-26'"):
            Server([discovery()], [greeting("2025-11-25")]).open(Negotiation("2025-03-26"))

    @pytest.mark.parametrize("protocol", ["", "new", "2024-01-01"])
    def test_nothing_else_can_be_configured(self, protocol: str) -> None:
        with pytest.raises(ValueError, match=f"must be one of {', '.join(PROTOCOLS)}"):
            Negotiation(protocol)
