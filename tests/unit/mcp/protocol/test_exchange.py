"""Conversations as generators: paginated lists, and a driver for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import CallTimeout, InvalidResponse, JsonRpcError, MCPError
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, Exchange, NegotiatedProtocol, Notify, Send, drive, paginate

Json = dict[str, Any]


def no_notification(notify: Notify) -> None:
    raise AssertionError(f"unexpected {notify}")


class Pages:
    """A server that answers with these results, one after the other."""

    def __init__(self, *results: Json) -> None:
        self.requests: list[Send] = []
        self._results: Iterator[Json] = iter(results)

    def items(self) -> list[Any]:
        return drive(paginate("tools/list", "tools"), self._answer, no_notification)

    def _answer(self, request: Send) -> Json:
        self.requests.append(request)
        return next(self._results)


class TestPagination:
    def test_a_list_without_pages_is_asked_for_once_without_params(self) -> None:
        server = Pages({"tools": [1, 2]})
        assert server.items() == [1, 2]
        assert server.requests == [Send("tools/list", None)]

    @given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=20))
    def test_however_a_server_pages_all_items_come_in_order(self, pages: list[list[int]]) -> None:
        """An empty string is a cursor, too."""
        results: list[Json] = [{"tools": page, "nextCursor": "x" * number} for number, page in enumerate(pages)]
        del results[-1]["nextCursor"]
        server = Pages(*results)
        assert server.items() == [item for page in pages for item in page]
        assert [request.params for request in server.requests[1:]] == [
            {"cursor": "x" * number} for number in range(len(pages) - 1)
        ]

    @pytest.mark.parametrize("cursors", [["a", "a"], ["", ""], ["a", "b", "a"]])
    def test_a_cursor_that_comes_twice_would_never_end(self, cursors: list[str]) -> None:
        server = Pages(*({"tools": [1], "nextCursor": cursor} for cursor in cursors))
        with pytest.raises(InvalidResponse, match="tools/list repeats a cursor"):
            server.items()

    def test_neither_would_a_new_cursor_for_ever_nor_does_a_list_without_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.protocol.exchange._MAX_PAGES", 3)
        monkeypatch.setattr("gaia.mcp.protocol.exchange._MAX_ITEMS", 10)
        server = Pages(*({"tools": [number], "nextCursor": str(number)} for number in range(10)))
        with pytest.raises(InvalidResponse, match="more than 3 pages"):
            server.items()
        assert len(server.requests) == 3
        with pytest.raises(InvalidResponse, match="more than 10 items"):
            Pages({"tools": [{}] * 11}).items()

    @pytest.mark.parametrize("pages", ["long items", "long cursors"])
    def test_pages_that_are_long_together_end_too(self, pages: str) -> None:
        """Cursors are remembered, because one that comes twice would loop for ever."""
        page, digits = ([{"name": "x" * 1_000_000}], 1) if pages == "long items" else ([], 1_000_000)
        server = Pages(*({"tools": page, "nextCursor": f"{number}".zfill(digits)} for number in range(100)))
        with pytest.raises(InvalidResponse, match="more than 67108864 bytes"):
            server.items()
        assert 67 <= len(server.requests) <= 68

    def test_a_page_may_be_nested_as_deeply_as_a_message(self) -> None:
        item = orjson.loads(b"[" * 1000 + b"]" * 1000)
        assert Pages({"tools": [item], "nextCursor": "1"}, {"tools": []}).items() == [item]

    @pytest.mark.parametrize("cursor", [5, True, ["a"], {"a": 1}])
    def test_a_cursor_that_is_no_string_is_not_followed(self, cursor: Any) -> None:
        with pytest.raises(InvalidResponse, match="not a string"):
            Pages({"tools": [], "nextCursor": cursor}).items()

    @pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": {"a": 1}}, {"tools": "all"}, {"resources": []}])
    def test_an_answer_without_the_list_is_invalid(self, result: Json) -> None:
        with pytest.raises(InvalidResponse, match="tools/list has no list 'tools'"):
            Pages(result).items()

    def test_an_error_on_the_way_is_the_error_of_the_list(self) -> None:
        def fail(request: Send) -> Json:
            if request.params:
                raise JsonRpcError(-32602, "the cursor has expired")
            return {"tools": [1], "nextCursor": "a"}

        with pytest.raises(JsonRpcError, match="expired"):
            drive(paginate("tools/list", "tools"), fail, no_notification)


class TestDrive:
    def test_it_answers_requests_passes_notifications_on_and_returns_the_outcome(self) -> None:
        def runner() -> Exchange[str]:
            first = yield Send("first", {"a": 1}, timeout=5.0)
            assert (yield Notify("noted", {"of": first["answer"]})) is None
            second = yield Send("second")
            return f"{first['answer']}, {second['answer']}"

        seen: list[Send | Notify] = []

        def request(send: Send) -> Json:
            seen.append(send)
            return {"answer": send.method.upper()}

        assert drive(runner(), request, seen.append) == "FIRST, SECOND"
        assert seen == [Send("first", {"a": 1}, 5.0), Notify("noted", {"of": "FIRST"}), Send("second")]

    def test_a_conversation_may_survive_an_error_and_ask_nothing_more(self) -> None:
        def forgiving() -> Exchange[str]:
            try:
                yield Send("first")
            except CallTimeout as error:
                return error.message
            return "no error"

        def late(_: Send) -> Json:
            raise CallTimeout("too late")

        assert drive(forgiving(), late, no_notification) == "too late"

    def test_an_error_that_is_not_the_protocols_ends_it_at_once(self) -> None:
        asked: list[Send] = []

        def stubborn() -> Exchange[None]:
            try:
                yield Send("first")
            except MCPError:
                yield Send("second")

        def interrupted(send: Send) -> Json:
            asked.append(send)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            drive(stubborn(), interrupted, no_notification)
        assert asked == [Send("first")]


class TestAddMeta:
    META: ClassVar[Json] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    PROTOCOL = NegotiatedProtocol("2026-07-28", META, server_may_ask=False)

    @pytest.mark.parametrize(
        "params",
        [None, {"_meta": None}, {"_meta": {"io.modelcontextprotocol/protocolVersion": "1"}}],
        ids=["a request without params", "a meta that is null", "another revision"],
    )
    def test_each_request_says_the_revision(self, params: Json | None) -> None:
        assert self.PROTOCOL.add_meta(params, None) == {"_meta": self.META}

    def test_what_a_caller_adds_is_kept_and_the_callers_dict_is_left_alone(self) -> None:
        params = {"name": "echo", "_meta": {"traceparent": "00-1-2-01"}}
        meta = {"traceparent": "00-1-2-01", **self.META, "progressToken": 7}
        assert self.PROTOCOL.add_meta(params, 7) == {"name": "echo", "_meta": meta}
        assert params == {"name": "echo", "_meta": {"traceparent": "00-1-2-01"}}

    def test_where_no_revision_asks_for_it_only_a_progress_token_is_added(self) -> None:
        params = {"name": "echo"}
        assert NegotiatedProtocol("2025-11-25").add_meta(params, None) is params
        assert NOT_NEGOTIATED.add_meta(None, 0) == {"_meta": {"progressToken": 0}}


def test_each_request_asks_for_the_last_log_level_and_the_rest_stays() -> None:
    before = NegotiatedProtocol("2026-07-28", {"a": 1}, server_may_ask=False)
    after = before.with_log_level("warning").with_log_level("debug")
    meta = {"a": 1, "io.modelcontextprotocol/logLevel": "debug"}
    assert after == NegotiatedProtocol("2026-07-28", meta, server_may_ask=False)
    assert before.request_meta == {"a": 1}
