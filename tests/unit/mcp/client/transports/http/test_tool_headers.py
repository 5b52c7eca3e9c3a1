"""Arguments as headers (2026-07-28, "Streamable HTTP": "Custom Headers")."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client.transports.http.headers import encode_value
from gaia.mcp.client.transports.http.tool_headers import InvalidMark, ToolHeaders, marks
from tests.servers.http_server import MODERN, Exchange
from tests.unit.mcp.client.transports.http.conftest import Connect, Serve


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(mark: Any = "Region", kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": mark}


REGION = {"name": "deploy", "inputSchema": schema(region=marked(), size=marked("Size", "integer"))}
TEXT = {"content": [{"type": "text", "text": "hi"}]}


class TestMarks:
    def test_they_are_found_wherever_they_are_always_in_the_same_place(self) -> None:
        outer = {"type": "object", "properties": {"inner": marked("In")}}
        assert marks(schema(region=marked(), outer=outer, plain={})) == {
            ("region",): "Region",
            ("outer", "inner"): "In",
        }

    @pytest.mark.parametrize("mark", ["", "a b", "a:b", "ü", 5, None, ["x"]])
    def test_what_is_no_name_of_a_header_is_invalid(self, mark: Any) -> None:
        with pytest.raises(InvalidMark, match="'region'"):
            marks(schema(region=marked(mark)))

    @pytest.mark.parametrize("kind", ["number", "object", "array", "null", None, ["string"]])
    def test_not_everything_can_be_a_header(self, kind: Any) -> None:
        with pytest.raises(InvalidMark, match="string, integer, boolean"):
            marks(schema(region=marked(kind=kind)))

    @pytest.mark.parametrize(
        "somewhere",
        [
            {"items": marked()},
            {"type": "object", "x-mcp-header": "A"},
            {"anyOf": [schema(region=marked())]},
            {"$defs": {"a": marked()}},
            {"properties": {"a": {"items": schema(region=marked())}}},
        ],
    )
    def test_nor_from_everywhere(self, somewhere: Any) -> None:
        with pytest.raises(InvalidMark, match="always in the same place"):
            marks(somewhere)

    def test_two_headers_need_two_names(self) -> None:
        with pytest.raises(InvalidMark, match="taken by another"):
            marks(schema(a=marked("Region"), b=marked("region")))

    def test_data_is_no_schema(self) -> None:
        assert marks(schema(a={"type": "object", "default": marked(), "enum": [marked()]})) == {}

    def test_a_property_may_have_any_name(self) -> None:
        assert marks(schema(**{"x-mcp-header": marked()})) == {("x-mcp-header",): "Region"}

    @pytest.mark.parametrize("nothing", [None, [], "x", True, {}])
    def test_a_schema_that_is_none_has_none(self, nothing: Any) -> None:
        assert marks(nothing) == {}

    def test_a_schema_may_be_very_deep(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(20_000):
            deep = {"not": deep}
        assert marks(deep) == {}


class TestValues:
    @pytest.mark.parametrize(
        ("value", "encoded"),
        [
            ("us-west1", "us-west1"),
            ("a b", "a b"),
            ("", ""),
            (42, "42"),
            (-1, "-1"),
            (True, "true"),
            (False, "false"),
            ("grüße", "=?base64?Z3LDvMOfZQ==?="),
            (" a", "=?base64?IGE=?="),
            ("a\n", "=?base64?YQo=?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ],
    )
    def test_they_are_sent_as_they_are_if_they_arrive_like_that(self, value: Any, encoded: str) -> None:
        assert encode_value(value) == encoded

    @given(st.text())
    def test_every_text_can_be_sent_and_read(self, text: str) -> None:
        encoded = encode_value(text)
        assert encoded.isascii()
        assert encoded.isprintable()
        assert encoded == encoded.strip()
        if encoded.startswith("=?base64?"):
            assert base64.b64decode(encoded[9:-2]).decode("utf-8", "surrogatepass") == text
        else:
            assert encoded == text

    def test_of_arguments_that_are_missing_or_no_values_there_is_no_header(self) -> None:
        headers = ToolHeaders("s")
        headers.learn([REGION])
        assert headers.of({"name": "deploy", "arguments": {"region": None}}) == {}
        assert headers.of({"name": "deploy", "arguments": {"region": ["a"], "size": 2.0}}) == {"Mcp-Param-Size": "2"}
        assert headers.of({"name": "other", "arguments": {"region": "a"}}) == {}
        assert headers.of({"name": "deploy", "arguments": "?"}) == {}
        assert headers.of(None) == {}


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
