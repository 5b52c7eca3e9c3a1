"""What a response means that has no message as its body."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gaia.http.errors import HttpClientError
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.mcp import MCPClient
from gaia.mcp.errors import HttpError, InvalidResponse, NeedsAuthorization
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.request_headers import RequestHeaders
from gaia.mcp.rpc.channel import Frame
from gaia.mcp.transports.http import error_responses
from gaia.mcp.transports.http.http_session import SESSION_ID, HttpSession, is_stateless
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.mcp.transports.http.conftest import TEXT, Connect, Serve, a_response

MAX_ERROR_BYTES = 64 * 1024


def response(status: int, **headers: str) -> Response:
    return a_response(status, {name.replace("_", "-"): value for name, value in headers.items()})


def body(error: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": error}).encode()


def refusal(answered: Response, said: bytes = b"") -> HttpError:
    return error_responses.refusal(
        answered, Url.parse("http://host/mcp"), said, "web", lambda text: text.replace("hunter2", "***")
    )


class TestError:
    @pytest.mark.parametrize("said", [b"", b"{", b"[]", b"<h1>", b'{"jsonrpc": "2.0", "id": 1, "result": {}}'])
    def test_what_is_no_error_is_none(self, said: bytes) -> None:
        assert error_responses.error_in(said) is None

    @pytest.mark.parametrize(("error", "code"), [({"code": -32000}, -32000), ({}, None), ("no", None), (None, None)])
    def test_it_may_have_no_code(self, error: Any, code: int | None) -> None:
        found = error_responses.error_in(body(error))
        assert found is not None
        assert error_responses.code_of(found) == code

    def test_as_an_answer_it_has_our_id_and_is_otherwise_the_same(self) -> None:
        error = {"code": -32600, "message": "größer", "data": [1]}
        found = error_responses.error_in(body(error))
        assert found is not None
        assert json.loads(error_responses.with_id(found, 7)) == {"jsonrpc": "2.0", "id": 7, "error": error}


class TestExcerpt:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            (b"", ""),
            (b"<html><body></body></html>", ""),
            (b"<style>p {}</style><SCRIPT>x()</script ><p>Not  \n found</p>", ": Not found"),
            (b"your hunter2 is wrong", ": your *** is wrong"),
            (b"\xff", ": \ufffd"),
            (b"x" * 200, f": {'x' * 200}"),
            (b"x" * 201, f": {'x' * 200}…"),
            (b"<br>" * 1023 + b"xhunter2", ": x***"),
            (b"hun<br>ter2", ": hun ter2"),
        ],
    )
    def test_it_is_the_beginning_of_the_text_without_markup_and_secrets(self, said: bytes, expected: str) -> None:
        assert error_responses.excerpt(said, lambda text: text.replace("hunter2", "***")) == expected

    def test_no_part_of_a_secret_is_left_at_its_end(self) -> None:
        said = b"x" * 197 + b" hunter2"
        assert "hun" not in error_responses.excerpt(said, lambda text: text.replace("hunter2", "***"))

    @pytest.mark.parametrize("said", ["<script ", "<", "<style", "<script></", " "])
    def test_a_body_that_is_made_to_be_searched_for_ever_is_not(self, said: str) -> None:
        began = time.process_time()
        error_responses.excerpt((said * 100_000).encode()[:MAX_ERROR_BYTES], str)
        assert time.process_time() - began < 2


class TestRefusal:
    @pytest.mark.parametrize(
        ("answered", "expected"),
        [
            (response(401), True),
            (response(401, WWW_Authenticate="Bearer"), True),
            (response(403, WWW_Authenticate="Bearer"), True),
            (response(403), False),
            (response(404, WWW_Authenticate="Bearer"), False),
        ],
    )
    def test_only_what_a_login_can_change_asks_for_one(self, answered: Response, expected: bool) -> None:
        error = refusal(answered)
        assert isinstance(error, NeedsAuthorization) is expected
        assert error.status == answered.status

    @pytest.mark.parametrize(
        ("location", "said"),
        [
            (
                "http://me:hunter2@other/login?token=hunter2",
                "it redirects to http://other/login, which is not followed",
            ),
            *((location, "it redirects to nowhere") for location in ("", "http://[", "ftp://host/")),
        ],
    )
    def test_a_redirect_that_is_not_followed_shows_no_secrets(self, location: str, said: str) -> None:
        assert said in refusal(response(302, Location=location)).message

    def test_one_that_nobody_is_let_in_for_says_how_to_log_in(self, server: ScriptedServer, client: MCPClient) -> None:
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=401)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == ("needs_authorization", "not_sent")
        assert "gaia mcp login web" in result["error"]


def test_what_a_server_repeats_of_secrets_is_masked(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server, headers={"Authorization": "Bearer abcdef-secret"})
    echoed = b"you sent abcdef-secret"
    server.on["tools/call"] = lambda exchange: exchange.body(echoed, "text/plain", 400)
    assert client.call_tool("echo", {})["error"].endswith("400 Bad Request: you sent ***")


class TestForgottenSession:
    @pytest.mark.parametrize(
        ("status", "error", "expected"),
        [
            (404, None, True),
            (404, {"code": -32600, "message": "no"}, True),
            (400, {"code": -32000, "message": "No valid Session ID"}, True),
            (400, {"code": -32000, "message": "bad"}, False),
            (400, {"code": -32000}, False),
            (400, "session", False),
            (400, None, False),
            (410, None, False),
        ],
    )
    def test_it_is_known_by_the_status_or_by_what_is_said(self, status: int, error: Any, expected: bool) -> None:
        found = None if error is None else error_responses.error_in(body(error))
        assert error_responses.is_forgotten(response(status), "s-1", found) is expected
        assert not error_responses.is_forgotten(response(status), None, found)

    def test_some_servers_say_it_with_400(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})

        def example(exchange: Exchange) -> None:
            if exchange.seen.headers["mcp-session-id"] == "session-1":
                error = exchange.error(-32000, "Bad Request: No valid session ID provided")
                exchange.json({**error, "id": None}, status=400)
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = example
        assert client.call_tool("echo", {}) == TEXT

    def test_a_server_that_answers_the_call_has_read_it(self, server: ScriptedServer, client: MCPClient) -> None:
        """It may have acted, so the call is not made again."""
        error = "the database session has expired"
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32000, error), status=400)
        result = client.call_tool("echo", {})
        assert (result["error"], result["delivery"]) == (error, "unknown")
        assert len(server.of("tools/call")) == 1

    def test_a_404_without_a_session_is_no_end_of_one(self, serve: Serve, connect: Connect) -> None:
        server = serve(sessions=False)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=404)
        assert client.call_tool("echo", {})["error_type"] == "http"
        assert client.status.generation == 1


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


def test_a_reason_is_one_line_without_secrets_or_the_type_of_an_error_that_says_nothing(session: HttpSession) -> None:
    assert session.reason(OSError("no route\n  to secret")) == "no route to ***"
    assert session.reason(HttpClientError("")) == "HttpClientError"


@pytest.mark.parametrize(("negotiated", "expected"), [(NOT_NEGOTIATED, False), (HANDSHAKE, False), (STATELESS, True)])
def test_only_a_server_that_may_not_ask_is_stateless(negotiated: NegotiatedProtocol, expected: bool) -> None:
    assert is_stateless(negotiated) is expected


class TestWhatIsSent:
    def test_a_session_is_named_in_all_that_follows_its_beginning(
        self, server: ScriptedServer, client: MCPClient
    ) -> None:
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
    def test_visible_characters_are_an_id_and_a_server_may_have_none(
        self, session: HttpSession, identifier: str
    ) -> None:
        session.begin(identifier)
        assert session.stream_headers(None)["Mcp-Session-Id"] == identifier
        session.begin(None)
        assert session.id is None

    @pytest.mark.parametrize("identifier", ["", "x" * 4097, "a b", "a\tb", "ü", "\x7f"])
    def test_nothing_else_is_repeated_in_each_request(self, session: HttpSession, identifier: str) -> None:
        with pytest.raises(InvalidResponse, match=f"it has {len(identifier)} characters"):
            session.begin(identifier)
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
