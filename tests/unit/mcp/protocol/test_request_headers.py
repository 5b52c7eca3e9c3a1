"""What requests say in HTTP headers (2026-07-28, "Streamable HTTP": "Request Metadata", "Custom Headers")."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.protocol.request_headers import InvalidMark, RequestHeaders, encode_value, marks


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(mark: Any = "Region", kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": mark}


def unnoticed() -> RequestHeaders:
    return RequestHeaders(lambda _name, _reason: None)


REGION = {"name": "deploy", "inputSchema": schema(region=marked(), size=marked("Size", "integer"))}


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

    @pytest.mark.parametrize(
        ("where", "found"),
        [
            (schema(a={"type": "object", "default": marked(), "enum": [marked()]}), {}),
            (schema(**{"x-mcp-header": marked()}), {("x-mcp-header",): "Region"}),
            *((nothing, {}) for nothing in (None, [], "x", True, {})),
        ],
    )
    def test_data_is_no_schema_and_a_property_may_have_any_name(self, where: Any, found: Any) -> None:
        assert marks(where) == found

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
        headers = unnoticed()
        headers.learn_tools([REGION])

        def custom(params: Any) -> dict[str, str]:
            sent = headers.of("tools/call", params)
            return {name: value for name, value in sent.items() if name.startswith("Mcp-Param-")}

        assert custom({"name": "deploy", "arguments": {"region": None}}) == {}
        assert custom({"name": "deploy", "arguments": {"region": ["a"], "size": 2.0}}) == {"Mcp-Param-Size": "2"}
        assert custom({"name": "other", "arguments": {"region": "a"}}) == {}
        assert custom({"name": "deploy", "arguments": "?"}) == {}
        assert custom(None) == {}


class TestMetadata:
    @pytest.mark.parametrize(
        ("method", "params", "headers"),
        [
            ("tools/call", {"name": "add"}, {"Mcp-Method": "tools/call", "Mcp-Name": "add"}),
            ("resources/read", {"uri": "file:///ä"}, {"Mcp-Name": encode_value("file:///ä")}),
            ("prompts/get", {"name": 5}, {"Mcp-Method": "prompts/get"}),
            ("tools/list", None, {"Mcp-Method": "tools/list"}),
            (None, None, {}),
        ],
    )
    def test_the_method_and_what_a_request_is_about_are_headers(
        self, method: str | None, params: dict[str, Any] | None, headers: dict[str, str]
    ) -> None:
        sent = unnoticed().of(method, params)
        assert sent == ({} if method is None else {"Mcp-Method": method}) | headers


class TestListings:
    def test_only_a_list_of_tools_that_has_some_that_must_not_be_offered_is_changed(self) -> None:
        bad = {"name": "bad", "inputSchema": schema(a=marked(kind="number"))}
        excluded: list[str] = []
        headers = RequestHeaders(lambda name, _reason: excluded.append(name))

        def answer(*tools: Any) -> bytes:
            return orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}})

        assert headers.learn("tools/list", None, answer(REGION, "?", {})) == answer(REGION, "?", {})
        assert headers.learn("tools/call", None, answer(bad)) == answer(bad)
        assert excluded == []
        assert headers.learn("tools/list", None, answer(REGION, bad)) == answer(REGION)
        assert excluded == ["bad"]

    def test_a_tool_that_is_not_listed_any_more_is_forgotten(self) -> None:
        headers = unnoticed()
        call = {"name": "deploy", "arguments": {"region": "a"}}
        headers.learn_tools([REGION])
        assert "Mcp-Param-Region" in headers.of("tools/call", call)
        headers.learn_tools([])
        assert "Mcp-Param-Region" not in headers.of("tools/call", call)

    def test_pages_are_one_listing(self) -> None:
        headers = unnoticed()

        def page(cursor: str | None, following: str | None, *names: str) -> None:
            result = {"tools": [{**REGION, "name": name} for name in names], "nextCursor": following}
            answer = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
            assert headers.learn("tools/list", None if cursor is None else {"cursor": cursor}, answer) == answer

        def known() -> str:
            calls = ((name, {"name": name, "arguments": {"region": "a"}}) for name in "abcd")
            return "".join(name for name, call in calls if "Mcp-Param-Region" in headers.of("tools/call", call))

        page(None, "2", "a", "b")
        page("2", None, "c")
        assert known() == "abc"
        page(None, "2", "d")
        assert known() == "abcd", "the listing is not complete"
        page("2", None, "a")
        assert known() == "ad"

    @pytest.mark.parametrize("following", [None, "more"])
    def test_no_server_fills_the_memory_with_them(self, following: str | None) -> None:
        headers = unnoticed()
        for listing in range(10):
            tools = [{**REGION, "name": f"{listing}-{number}"} for number in range(3_000)]
            result = {"tools": tools, "nextCursor": following}
            headers.learn("tools/list", None, orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))
        assert len(headers._marks) <= 4_000

    def test_a_tool_without_marks_takes_no_room_and_one_with_very_many_is_left_out(self) -> None:
        excluded: list[str] = []
        headers = RequestHeaders(lambda name, _reason: excluded.append(name))
        headers.learn_tools([{"name": str(number), "inputSchema": {}} for number in range(100)])
        assert not headers._marks
        properties = {f"p{number}": {"type": "string", "x-mcp-header": f"P{number}"} for number in range(65)}
        assert headers.learn_tools([{"name": "many", "inputSchema": schema(**properties)}]) == []
        assert excluded == ["many"]

    @pytest.mark.parametrize("other", [b"{", b"[]", b'{"result": []}', b'{"result": {"tools": {}}}', b'{"error": {}}'])
    def test_what_is_no_list_stays_as_it_is(self, other: bytes) -> None:
        assert unnoticed().learn("tools/list", None, other) == other
