"""What both eras have in common: listing tools, pinging, and what is kept of a server's description of itself."""

from collections.abc import Sequence
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError, MCPError, ServerCrashed
from gaia.mcp.protocol.eras import ClientIdentity, Era, ServerProfile, instructions_of, object_member
from gaia.mcp.protocol.exchange import Send, drive

Json = dict[str, Any]


class SomeEra(Era):
    _ping = Send("cheap", {"a": 1}, timeout=99.0)

    def listen(self, _profile: ServerProfile, _resources: Sequence[str]) -> None:
        """Its servers tell unasked."""


def profile(**changes: Any) -> ServerProfile:
    fields: Json = {"protocol_version": "1", "server_info": {}, "capabilities": {}, "era": SomeEra(), **changes}
    return ServerProfile(**fields)


class Server:
    """Answers requests with these outcomes, one after the other."""

    def __init__(self, *outcomes: Json | MCPError) -> None:
        self.requests: list[Send] = []
        self._outcomes = iter(outcomes)

    def request(self, send: Send) -> Json:
        self.requests.append(send)
        outcome = next(self._outcomes)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    def ping(self, timeout: float) -> None:
        drive(SomeEra().ping(timeout), self.request, lambda _: None)


class TestPing:
    @pytest.mark.parametrize("answer", [{}, JsonRpcError(-32601, "unknown"), InvalidResponse("no object")])
    def test_any_answer_is_enough(self, answer: Json | MCPError) -> None:
        server = Server(answer)
        server.ping(2.0)
        assert server.requests == [Send("cheap", {"a": 1}, timeout=2.0)]

    @pytest.mark.parametrize("answer", [{}, JsonRpcError(-32601, "unknown"), InvalidResponse("no object")])
    def test_silence_is_confirmed_by_a_second_method(self, answer: Json | MCPError) -> None:
        server = Server(CallTimeout("late"), answer)
        server.ping(2.0)
        assert [(send.method, send.timeout) for send in server.requests] == [("cheap", 2.0), ("tools/list", 2.0)]

    def test_silence_on_both_is_a_timeout(self) -> None:
        with pytest.raises(CallTimeout, match="later"):
            Server(CallTimeout("late"), CallTimeout("later")).ping(2.0)

    def test_a_connection_that_ends_is_not_an_answer(self) -> None:
        server = Server(ServerCrashed("gone"))
        with pytest.raises(ServerCrashed):
            server.ping(2.0)
        assert len(server.requests) == 1


class TestListing:
    def test_a_server_without_the_capability_is_not_asked(self) -> None:
        server = Server()
        assert drive(SomeEra().list_tools(profile()), server.request, lambda _: None) == []
        assert server.requests == []

    @pytest.mark.parametrize("details", [{}, None, {"listChanged": True}])
    def test_the_capability_counts_whatever_its_details(self, details: Any) -> None:
        server = Server({"tools": [1], "nextCursor": "a"}, {"tools": [2]})
        listing = SomeEra().list_tools(profile(capabilities={"tools": details}))
        assert drive(listing, server.request, lambda _: None) == [1, 2]


class TestProfile:
    def test_texts_of_the_server_are_masked(self) -> None:
        before = profile(server_info={"name": "my hunter22", "icons": [1]}, instructions="say hunter22")
        after = before.masked(lambda text: text.replace("hunter22", "***"))
        assert (after.server_info, after.instructions) == ({"name": "my ***", "icons": [1]}, "say ***")
        assert before.instructions == "say hunter22"

    def test_missing_instructions_stay_missing(self) -> None:
        assert profile().masked(str.upper).instructions is None


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


def test_the_identity_has_the_form_of_the_specification() -> None:
    assert ClientIdentity("tester", "1.2").info == {"name": "tester", "version": "1.2"}
