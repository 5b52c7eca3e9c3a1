"""One message on its way, and all that may come back."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from gaia.mcp.client.protocol.request_headers import RequestHeaders, encode_value
from gaia.mcp.client.rpc.channel import Outgoing
from gaia.mcp.client.transports.http.http_connection import HttpConnection
from gaia.mcp.client.transports.http.http_session import HttpSession, HttpSink
from gaia.mcp.client.transports.http.post import Post
from tests.servers.http_server import MODERN, Exchange
from tests.unit.mcp.client.protocol.test_request_headers import REGION, schema
from tests.unit.mcp.client.transports.http.conftest import ERAS, TEXT, Connect, Serve, threads


class TestAnswers:
    @ERAS
    def test_an_error_of_the_server_arrives_whatever_its_status(self, era: str, serve: Serve, connect: Connect) -> None:
        server = serve(era=era)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32602, "bad"), status=400)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32602)

    def test_an_error_without_our_id_is_the_answer_to_the_request(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32600, "no") | {"id": None}, 400)
        assert client.call_tool("echo", {})["code"] == -32600

    def test_progress_and_answer_come_on_one_stream(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def report(exchange: Exchange) -> None:
            token = exchange.seen.body["params"]["_meta"]["progressToken"]
            exchange.begin_stream()
            exchange.chunk(b": a comment\n\n")
            params = {"progressToken": token, "progress": 1, "total": 2}
            exchange.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            exchange.event(exchange.answer(TEXT))
            exchange.end_stream()

        server.on["tools/call"] = report
        progress: list[Any] = []
        assert client.call_tool("echo", {}, on_progress=lambda *told: progress.append(told)) == TEXT
        assert progress == [(1, 2, None)]


class TestOneRequest:
    """It fails by itself; the next one succeeds on the same connection."""

    @pytest.mark.parametrize(
        ("action", "error_type", "said"),
        [
            (lambda exchange: exchange.body(b"<h1>Oh</h1>", "text/html", 500), "http", "500 Internal Server Error: Oh"),
            (lambda exchange: exchange.body(b"", status=403), "http", "403 Forbidden"),
            (lambda exchange: exchange.body(b"", status=599), "http", "answered 599"),
            (lambda exchange: exchange.body(b"hello", "text/plain"), "http", "text/plain, which is no MCP: hello"),
            (lambda exchange: exchange.body(b"{}"), "http", "no content type"),
            (lambda exchange: exchange.body(b"", status=202), "http", "will not answer"),
            (lambda exchange: exchange.body(b"{", "application/json"), "invalid_response", "not the answer"),
            (lambda exchange: exchange.json({"jsonrpc": "2.0", "id": -5, "result": {}}), "invalid_response", "not the"),
            (lambda exchange: exchange.json({"a": "x" * 200_000}), "invalid_response", "maxMessageBytes"),
            (lambda exchange: exchange.stream({"a": "x" * 200_000}), "invalid_response", "cannot be read"),
            (lambda exchange: exchange.stream(), "server_crashed", "without the answer"),
            (lambda exchange: exchange.drop(), "server_crashed", "the connection broke"),
            (lambda exchange: (exchange.begin_stream(), exchange.drop()), "server_crashed", "the connection broke"),
            (
                lambda exchange: exchange.body(b"", status=302, headers={"Location": "http://127.0.0.1:9/?key=0"}),
                "http",
                "redirects to http://127.0.0.1:9/, which is not followed",
            ),
        ],
    )
    def test_its_call_says_what_happened(
        self, action: Any, error_type: str, said: str, serve: Serve, connect: Connect
    ) -> None:
        server = serve()
        client = connect(server, maxMessageBytes=100_000)
        server.on["tools/call"] = action
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == (error_type, "unknown")
        assert said in result["error"]
        del server.on["tools/call"]
        assert "content" in client.call_tool("echo", {})
        assert client.status.generation == 1

    @ERAS
    def test_a_lost_answer_is_asked_for_again_if_that_is_harmless(
        self, era: str, serve: Serve, connect: Connect
    ) -> None:
        server = serve(era=era)
        client = connect(server)

        def first_drop(exchange: Exchange) -> None:
            if len(server.of("tools/call")) == 1:
                exchange.drop()
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = first_drop
        assert client.call_tool("read", {})["content"] == TEXT["content"]
        first, second = server.of("tools/call")
        assert first.body["id"] != second.body["id"]

    def test_it_is_not_asked_for_a_third_time(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.drop()
        assert client.call_tool("read", {})["error_type"] == "server_crashed"
        assert len(server.of("tools/call")) == 2

    def test_what_may_have_been_done_is_not_done_again(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.drop()
        assert client.call_tool("echo", {})["delivery"] == "unknown"
        assert len(server.of("tools/call")) == 1

    def test_a_stream_that_breaks_is_continued_where_it_broke(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        call: list[Any] = []

        def begin(exchange: Exchange) -> None:
            call.append(exchange.id)
            exchange.begin_stream()
            exchange.event("", id="7", retry="300")
            exchange.end_stream()
            call.append(time.monotonic())

        def go_on(exchange: Exchange) -> None:
            call.append(time.monotonic())
            exchange.stream({"jsonrpc": "2.0", "id": call[0], "result": TEXT})

        assert server.wait_for("GET")
        server.on |= {"tools/call": begin, "GET": go_on}
        assert client.call_tool("echo", {}) == TEXT
        assert server.of("GET")[-1].headers["last-event-id"] == "7"
        assert 0.25 < call[2] - call[1] < 0.6

    def test_a_stream_that_cannot_be_continued_is_lost(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        assert server.wait_for("GET")

        def begin(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("", id="7", retry="10")
            exchange.end_stream()

        server.on |= {"tools/call": begin, "GET": lambda exchange: exchange.body(b"", status=500)}
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
        assert "resuming was answered with 500" in result["error"]
        assert len(server.of("GET")) == 4

    def test_nor_is_it_waited_for_by_somebody_who_has_left(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def begin(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.event("", id="7", retry="60000")
            exchange.end_stream()

        server.on["tools/call"] = begin
        assert client.call_tool("echo", {}, timeout=0.2)["error_type"] == "timeout"
        began = time.monotonic()
        client.disconnect()
        assert time.monotonic() - began < 1.5
        assert threads() == []

    def test_redirects_within_the_server_are_followed(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)

        def moved(exchange: Exchange) -> None:
            if exchange.seen.path == "/mcp":
                exchange.body(b"", status=307, headers={"Location": "/mcp/"})
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = moved
        assert client.call_tool("echo", {}) == TEXT

    def test_and_not_for_ever(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=308, headers={"Location": "/mcp"})
        assert "redirects more than" in client.call_tool("echo", {})["error"]


class TestHeaders:
    """Arguments as headers (2026-07-28, "Streamable HTTP": "Custom Headers")."""

    def test_arguments_are_sent_as_headers_too(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, tools=[REGION])
        client = connect(server)
        client.call_tool("deploy", {"region": "Zürich", "size": 3})
        (call,) = server.of("tools/call")
        assert call.headers["mcp-param-region"] == encode_value("Zürich")
        assert call.headers["mcp-param-size"] == "3"

    @pytest.mark.parametrize("answer_in_streams", [False, True])
    def test_a_call_whose_headers_are_outdated_is_sent_once_more_with_the_new_ones(
        self, answer_in_streams: bool, serve: Serve, connect: Connect
    ) -> None:
        server = serve(era=MODERN, tools=[{"name": "deploy", "inputSchema": schema(region={"type": "string"})}])
        server.answer_in_streams = answer_in_streams

        def strict(exchange: Exchange) -> None:
            if "mcp-param-region" in exchange.seen.headers:
                server.respond(exchange, exchange.answer(TEXT))
            else:
                exchange.json(exchange.error(-32020, "Header mismatch"), status=400)

        client = connect(server)
        server.on["tools/call"] = strict
        server.tools = [REGION]
        assert client.call_tool("deploy", {"region": "a"}) == TEXT
        assert len(server.of("tools/call")) == 2

    def test_and_not_if_nothing_has_changed(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, tools=[REGION])
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.json(exchange.error(-32020, "no"), status=400)
        result = client.call_tool("deploy", {"region": "a"})
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32020)
        assert len(server.of("tools/call")) == 1


def test_one_that_was_given_up_before_its_turn_is_not_even_asked_whether_it_may_be_sent() -> None:
    session = HttpSession("web", httpx2.URL("http://host/"), str, 1000, RequestHeaders(lambda *_: None))
    item, connection = Mock(spec=Outgoing), Mock(spec=HttpConnection)
    post = Post(session, Mock(spec=HttpSink), item)
    post.interrupt()
    post.run(connection)
    connection.request.assert_not_called()
    item.begin_write.assert_not_called()
    item.undo_write.assert_not_called()
