"""Arguments as headers, over HTTP (2026-07-28, "Streamable HTTP": "Custom Headers")."""

from __future__ import annotations

import pytest

from gaia.mcp.client.protocol.request_headers import encode_value
from tests.servers.http_server import MODERN, Exchange
from tests.unit.mcp.client.protocol.test_request_headers import REGION, marked, schema
from tests.unit.mcp.client.transports.http.conftest import Connect, Serve

TEXT = {"content": [{"type": "text", "text": "hi"}]}


class TestOverHttp:
    def test_arguments_are_sent_as_headers_too(self, serve: Serve, connect: Connect) -> None:
        server = serve(era=MODERN, tools=[REGION])
        client = connect(server)
        client.call_tool("deploy", {"region": "Zürich", "size": 3})
        (call,) = server.of("tools/call")
        assert call.headers["mcp-param-region"] == encode_value("Zürich")
        assert call.headers["mcp-param-size"] == "3"

    def test_a_tool_that_cannot_be_called_is_not_offered(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = {"name": "bad", "inputSchema": schema(a=marked(kind="number"))}
        client = connect(serve(era=MODERN, tools=[REGION, bad]))
        assert [tool.name for tool in client.list_tools()] == ["deploy"]
        (record,) = [record for record in caplog.records if "tool_excluded" in record.getMessage()]
        assert "'bad'" in record.getMessage()
        assert "only a string, integer, boolean can be a header" in record.getMessage()

    def test_a_server_of_the_other_era_knows_no_such_marks(self, serve: Serve, connect: Connect) -> None:
        bad = {"name": "bad", "inputSchema": schema(a=marked(kind="number"))}
        assert [tool.name for tool in connect(serve(tools=[bad])).list_tools()] == ["bad"]

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
