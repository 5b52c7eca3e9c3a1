"""What all requests to one server have in common."""

from __future__ import annotations

from tests.servers.http_server import LEGACY, MODERN
from tests.unit.mcp.client.transports.http.conftest import Connect, Serve


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
