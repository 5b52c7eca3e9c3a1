"""What a response means that has no message as its body."""

from __future__ import annotations

from tests.servers.http_server import Exchange
from tests.unit.mcp.client.transports.http.conftest import TEXT, Connect, Serve


class TestRefusal:
    def test_one_that_nobody_is_let_in_for_says_how_to_log_in(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=401)
        result = client.call_tool("echo", {})
        assert (result["error_type"], result["delivery"]) == ("needs_authorization", "not_sent")
        assert "gaia mcp login web" in result["error"]


class TestSecrets:
    def test_what_a_server_repeats_of_them_is_masked(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, headers={"Authorization": "Bearer abcdef-secret"})
        echoed = b"you sent abcdef-secret"
        server.on["tools/call"] = lambda exchange: exchange.body(echoed, "text/plain", 400)
        assert client.call_tool("echo", {})["error"].endswith("400 Bad Request: you sent ***")


class TestForgottenSession:
    def test_some_servers_say_it_with_400(self, serve: Serve, connect: Connect) -> None:
        server = serve()
        client = connect(server, restart={"initialDelay": 60, "maxDelay": 60})

        def example(exchange: Exchange) -> None:
            if exchange.seen.headers["mcp-session-id"] == "session-1":
                exchange.json(exchange.error(-32000, "Bad Request: No valid session ID provided"), status=400)
            else:
                server.respond(exchange, exchange.answer(TEXT))

        server.on["tools/call"] = example
        assert client.call_tool("echo", {}) == TEXT

    def test_a_404_without_a_session_is_no_end_of_one(self, serve: Serve, connect: Connect) -> None:
        server = serve(sessions=False)
        client = connect(server)
        server.on["tools/call"] = lambda exchange: exchange.body(b"", status=404)
        assert client.call_tool("echo", {})["error_type"] == "http"
        assert client.status.generation == 1
