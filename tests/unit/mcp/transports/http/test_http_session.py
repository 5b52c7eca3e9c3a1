"""What all requests to one server have in common."""

from __future__ import annotations

import json

import pytest

from gaia.http.errors import HttpClientError
from gaia.http.url import Url
from gaia.mcp import MCPClient
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.request_headers import RequestHeaders
from gaia.mcp.rpc.channel import Frame
from gaia.mcp.transports.http.http_session import SESSION_ID, HttpSession, is_stateless
from tests.servers.http_server import LEGACY, MODERN, Exchange
from tests.unit.mcp.transports.http.conftest import TEXT, Connect, Serve

INITIALIZE, CALL = Frame(b"", "initialize"), Frame(b"", "tools/call", {"name": "echo"})
HANDSHAKE, STATELESS = NegotiatedProtocol(LEGACY), NegotiatedProtocol(MODERN, server_may_ask=False)


@pytest.fixture
def session() -> HttpSession:
    return HttpSession(
        "web",
        Url.parse("http://127.0.0.1:9/mcp"),
        redact=lambda text: text.replace("secret", "***"),
        max_message_bytes=1000,
        request_headers=RequestHeaders(lambda *_: None),
    )


def test_its_repr_shows_neither_paths_nor_the_session(session: HttpSession) -> None:
    session.url, session.id = Url.parse("https://example.com/hooks/s3cr3t?key=s3cr3t"), "s3cr3t"
    assert "s3cr3t" not in repr(session)


class TestHeaders:
    def test_before_anything_is_agreed_neither_revision_nor_session_is_named(self, session: HttpSession) -> None:
        named = {"MCP-Protocol-Version", SESSION_ID}
        assert not named & session.post_headers(INITIALIZE, NOT_NEGOTIATED).keys()
        assert not named & session.stream_headers(None).keys()

    def test_initialize_never_belongs_to_the_session_before_it(self, session: HttpSession) -> None:
        session.id = "old"
        assert SESSION_ID not in session.post_headers(INITIALIZE, NOT_NEGOTIATED)
        assert session.post_headers(CALL, HANDSHAKE)[SESSION_ID] == "old"

    def test_a_stateless_message_says_what_it_is_about_and_names_no_session(self, session: HttpSession) -> None:
        session.id = "old"
        headers = session.post_headers(CALL, STATELESS)
        assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "echo")
        assert SESSION_ID not in headers
        assert "Mcp-Method" not in session.post_headers(CALL, HANDSHAKE)

    def test_a_message_follows_the_protocol_that_it_was_encoded_for(self, session: HttpSession) -> None:
        session.negotiated = STATELESS
        assert session.post_headers(CALL, HANDSHAKE)["MCP-Protocol-Version"] == LEGACY

    def test_a_session_that_changes_is_named_from_then_on(self, session: HttpSession) -> None:
        named = []
        for identifier in ("a", "a", None, "b"):
            session.id = identifier
            named.append(session.post_headers(CALL, HANDSHAKE).get(SESSION_ID))
        assert named == ["a", "a", None, "b"]

    def test_a_stream_goes_on_after_the_last_event(self, session: HttpSession) -> None:
        session.negotiated, session.id = HANDSHAKE, "s-1"
        expected = {"Accept": "text/event-stream", "MCP-Protocol-Version": LEGACY, SESSION_ID: "s-1"}
        assert session.stream_headers(None) == expected
        assert session.stream_headers("7") == {**expected, "Last-Event-ID": "7"}


class TestReason:
    def test_it_is_one_line_without_secrets(self, session: HttpSession) -> None:
        assert session.reason(OSError("no route\n  to secret")) == "no route to ***"

    def test_of_an_error_that_says_nothing_it_is_the_type(self, session: HttpSession) -> None:
        assert session.reason(HttpClientError("")) == "HttpClientError"


@pytest.mark.parametrize(("negotiated", "expected"), [(NOT_NEGOTIATED, False), (HANDSHAKE, False), (STATELESS, True)])
def test_only_a_server_that_may_not_ask_is_stateless(negotiated: NegotiatedProtocol, expected: bool) -> None:
    assert is_stateless(negotiated) is expected


class TestWhatIsSent:
    def test_a_session_is_named_in_all_that_follows_its_beginning(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        client.call_tool("echo", {})
        server.wait_for("GET")
        client.disconnect()
        for seen in server.seen:
            begun = seen.method not in ("server/discover", "initialize")
            assert seen.headers.get("mcp-session-id") == ("session-1" if begun else None), seen.method
            expected = MODERN if seen.method == "server/discover" else LEGACY if begun else None
            assert seen.headers.get("mcp-protocol-version") == expected, seen.method
        assert server.methods()[-1] == "DELETE"
        assert server.open_sessions == set()

    def test_a_stateless_server_sees_what_a_request_is_about(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN)
        client = connect(server)
        client.call_tool("echo", {})
        call = server.seen[-1]
        assert call.headers["mcp-method"] == "tools/call"
        assert call.headers["mcp-name"] == "echo"
        assert call.headers["mcp-protocol-version"] == MODERN
        assert call.headers["accept"] == "application/json, text/event-stream"
        client.disconnect()
        assert {seen.verb for seen in server.seen} == {"POST"}
        assert not any("mcp-session-id" in seen.headers for seen in server.seen)


class TestBeginning:
    @pytest.mark.parametrize("identifier", ["s", "!~", "x" * 4096])
    def test_visible_characters_are_an_id(self, session: HttpSession, identifier: str) -> None:
        session.begin(identifier)
        assert session.stream_headers(None)["Mcp-Session-Id"] == identifier

    @pytest.mark.parametrize("identifier", ["", "x" * 4097, "a b", "a\tb", "ü", "\x7f"])
    def test_nothing_else_is_repeated_in_each_request(self, session: HttpSession, identifier: str) -> None:
        with pytest.raises(InvalidResponse, match=f"it has {len(identifier)} characters"):
            session.begin(identifier)
        assert session.id is None

    def test_a_server_may_have_none(self, session: HttpSession) -> None:
        session.begin("s")
        session.begin(None)
        assert session.id is None

    def test_a_server_with_one_that_is_too_long_does_not_get_ready(self, serve: Serve) -> None:
        server = serve()
        server.on["initialize"] = lambda exchange: exchange.json(
            exchange.answer({"protocolVersion": LEGACY, "capabilities": {}}), headers={"Mcp-Session-Id": "x" * 5000}
        )
        client = MCPClient.from_config("web", {"url": server.url})
        assert not client.connect()
        assert "it has 5000 characters" in str(client.last_error)
        client.disconnect()


def test_only_as_many_cookies_are_kept_as_a_request_can_repeat(serve: Serve, connect: Connect) -> None:
    server = serve()

    def set_cookies(exchange: Exchange) -> None:
        number = len(server.of("tools/call"))
        handler = exchange._handler
        handler.send_response(200)
        for cookie in range(20):
            handler.send_header("Set-Cookie", f"c{number}-{cookie}={'x' * 100}")
        handler.send_header("Set-Cookie", "c1-0=new")
        data = json.dumps(exchange.answer(TEXT)).encode()
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    client = connect(server)
    server.on["tools/call"] = set_cookies
    for _ in range(20):
        client.call_tool("echo", {})
    sent = server.of("tools/call")[-1].headers["cookie"]
    assert "c1-0=new" in sent
    assert 4000 < len(sent) < 9000
