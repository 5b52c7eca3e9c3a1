"""`ToolResult`: a dict like any other, and what it says of failures."""

import copy
import json
import pickle
from typing import Any

import msgspec
import orjson
import pytest

from gaia.mcp import errors
from gaia.mcp.errors import HttpError, JsonRpcError, MCPError, ServerCrashed, ToolFailed, UrlElicitationRequired
from gaia.mcp.tools.tool_result import ToolResult

Json = dict[str, Any]

HELLO: Json = {"content": [{"type": "text", "text": "hello"}]}
FAILED: Json = {"error": "the server ended", "error_type": "server_crashed", "delivery": "unknown"}
REFUSED: Json = {"content": [{"type": "text", "text": "no such file"}], "isError": True}
KINDS = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]


class TestMembers:
    def test_content_and_the_flag_are_always_there(self) -> None:
        assert dict(ToolResult()) == {"isError": False, "content": []}
        assert dict(ToolResult({"structuredContent": 1})) == {"structuredContent": 1, "isError": False, "content": []}

    def test_both_kinds_of_failure_have_content_and_an_error(self) -> None:
        content = [{"type": "text", "text": "the server ended"}]
        members = FAILED.copy()
        assert dict(ToolResult(members)) == {**FAILED, "isError": True, "content": content}
        assert members == FAILED
        assert dict(ToolResult.from_server(REFUSED)) == {**REFUSED, "error": "no such file"}

    @pytest.mark.parametrize("own", [{}, {"content": []}, {"content": None}])
    def test_one_without_a_text_has_words_instead(self, own: Json) -> None:
        result = ToolResult.from_server({"isError": True, **own})
        assert result["error"] == result.error == "the tool reported an error without a text"
        assert result.text == ""
        assert result["content"] == own.get("content", [])
        assert result.without_defaults() == {"isError": True, **own}

    @pytest.mark.parametrize(
        "members",
        [
            {**REFUSED, "error": {"of": "the server"}},
            {"content": "odd", "isError": "odd", "error": 1},
            {**HELLO, "isError": False},
        ],
    )
    def test_what_is_there_stays_as_it_is(self, members: Json) -> None:
        assert dict(ToolResult(members)) == dict(ToolResult.from_server(members)) == members

    def test_what_an_application_puts_in_place_of_a_default_is_no_default(self) -> None:
        changed, appended = ToolResult({"structuredContent": 1}), ToolResult({"structuredContent": 1})
        changed["isError"] = True
        appended["content"].append({"type": "text", "text": "no"})

        assert changed.without_defaults() == {"structuredContent": 1, "isError": True}
        assert appended.without_defaults() == {"structuredContent": 1, "content": [{"type": "text", "text": "no"}]}
        assert changed != {"structuredContent": 1}
        assert appended != {"structuredContent": 1}

    def test_an_error_that_is_nested_too_deeply_to_be_written_is_no_exception(self) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]

        assert ToolResult.from_server({"error": deep}).error == "(too deeply nested to show)"

    @pytest.mark.parametrize("members", [{}, HELLO, REFUSED, FAILED, {**HELLO, "isError": False}])
    def test_those_that_were_added_can_be_left_out(self, members: Json) -> None:
        plain = ToolResult(members).without_defaults()
        assert (type(plain), plain) == (dict, members)


class TestAsADict:
    @pytest.mark.parametrize("members", [{}, HELLO, REFUSED, FAILED])
    def test_it_equals_the_dict_with_or_without_what_was_added(self, members: Json) -> None:
        result = ToolResult(members)
        for same in (members, dict(result), ToolResult(members), ToolResult(dict(result))):
            assert result == same
            assert same == result
            assert (result != same, same != result) == (False, False)

    def test_it_equals_nothing_else(self) -> None:
        result = ToolResult(HELLO)
        for other in ({**HELLO, "isError": True}, {**HELLO, "more": 1}, {}, ToolResult(REFUSED), None, list(HELLO)):
            assert result != other
            assert other != result

    @pytest.mark.parametrize("members", [HELLO, REFUSED, FAILED])
    @pytest.mark.parametrize(
        "copied",
        [
            copy.copy,
            copy.deepcopy,
            ToolResult.copy,
            *(lambda result, version=version: pickle.loads(pickle.dumps(result, version)) for version in range(2, 6)),
        ],
    )
    def test_a_copy_is_a_result_too(self, members: Json, copied: Any) -> None:
        result = copied(ToolResult(members))
        assert type(result) is ToolResult
        assert dict(result) == dict(ToolResult(members))
        assert result.without_defaults() == members

    @pytest.mark.parametrize("encode", [json.dumps, orjson.dumps, msgspec.json.encode])
    def test_it_survives_json(self, encode: Any) -> None:
        assert repr(ToolResult(REFUSED)) == repr({**REFUSED, "error": "no such file"})
        for members in (HELLO, REFUSED, FAILED):
            result = ToolResult(members)
            assert json.loads(encode(result)) == dict(result)
            assert json.loads(encode([result])) == [dict(result)]
            assert ToolResult(json.loads(encode(result))).error == result.error


class TestReading:
    def test_a_success(self) -> None:
        result = ToolResult({**HELLO, "structuredContent": {"word": "hello"}})
        assert (result.is_error, result.error, result.text) == (False, None, "hello")
        assert result.structured == {"word": "hello"}
        assert result.content == HELLO["content"]
        assert result.raise_for_error() is result

    def test_both_kinds_of_failure_are_found_alike(self) -> None:
        for members, said in ((FAILED, "the server ended"), (REFUSED, "no such file")):
            result = ToolResult(members)
            assert (result.is_error, result.error, result.text) == (True, said, said)
            assert result.structured is None

    @pytest.mark.parametrize("flag", ["true", 1, None])
    def test_only_a_plain_true_is_an_error(self, flag: Any) -> None:
        assert not ToolResult({**HELLO, "isError": flag}).is_error

    @pytest.mark.parametrize("content", [None, 5, {"type": "text"}, [1, None, {}, {"type": 5}]])
    def test_what_is_no_block_is_left_out(self, content: Any) -> None:
        result = ToolResult({"content": content})
        assert (result.content, result.text) == ([], "")

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ("hi", "hi"),
            ([{"type": "text", "text": ["ü"]}, {"type": "text"}], '["ü"]\n'),
            ([{"type": "text", "text": "a"}, {"type": "image", "text": "?"}, {"type": "text", "text": "b"}], "a\nb"),
        ],
    )
    def test_text_is_what_the_blocks_of_text_say(self, content: Any, text: str) -> None:
        result = ToolResult({"content": content})
        assert result.text == text
        assert result.content == ([{"type": "text", "text": "hi"}] if content == "hi" else content)

    def test_members_that_were_taken_away_are_not_missed(self) -> None:
        result, refused = ToolResult(HELLO), ToolResult(REFUSED)
        result.clear()
        del refused["error"]
        assert (result.content, result.text, result.is_error, result.error) == ([], "", False, None)
        assert (refused.is_error, refused.error) == (True, "no such file")


class TestOfAServer:
    def test_its_result_is_taken_as_it_is(self) -> None:
        answer = {**HELLO, "structuredContent": 1, "_meta": {}, "custom": None}
        assert ToolResult.from_server(answer).without_defaults() == answer

    def test_it_cannot_say_how_the_call_failed(self) -> None:
        """A program that repeats calls with `delivery` ``not_sent`` would repeat those that the server got."""
        forged = {**HELLO, "error": "no", "error_type": "denied", "delivery": "not_sent"}
        result = ToolResult.from_server(forged)
        assert dict(result) == {**HELLO, "error": "no", "isError": True}
        with pytest.raises(ToolFailed, match=r"^no$") as raised:
            result.raise_for_error()
        assert raised.value.delivery == "unknown"


class TestRaising:
    @pytest.mark.parametrize("kind", [kind for kind in KINDS if not issubclass(kind, (JsonRpcError, ToolFailed))])
    @pytest.mark.parametrize("delivery", ["not_sent", "unknown"])
    def test_the_exception_of_a_failed_call_comes_back(self, kind: type[MCPError], delivery: errors.Delivery) -> None:
        failed = ToolResult.from_error(kind("words", delivery=delivery))
        with pytest.raises(MCPError, match=r"^words$") as raised:
            failed.raise_for_error()
        error = raised.value
        # Two classes say why a server is unavailable. The word is the same, and so is the class that comes back.
        unavailable = kind.error_type == errors.ServerUnavailable.error_type
        assert isinstance(error, errors.ServerUnavailable) if unavailable else issubclass(kind, type(error))
        assert (error.error_type, error.delivery, error.message) == (kind.error_type, delivery, "words")

    @pytest.mark.parametrize(
        "error",
        [JsonRpcError(-32000, "no"), JsonRpcError(-32602, "bad", {"a": 1}), UrlElicitationRequired(-32042, "go")],
    )
    def test_an_error_object_comes_back_with_code_and_data(self, error: JsonRpcError) -> None:
        with pytest.raises(JsonRpcError) as raised:
            ToolResult.from_error(error).raise_for_error()
        back = raised.value
        assert type(back) is type(error)
        assert (back.code, back.data, back.message, back.delivery) == (error.code, error.data, error.message, "unknown")

    def test_an_error_of_the_tool_has_an_exception_of_its_own(self) -> None:
        result = ToolResult(REFUSED)
        with pytest.raises(ToolFailed, match=r"^no such file$") as raised:
            result.raise_for_error()
        assert raised.value.result is result
        assert (raised.value.error_type, raised.value.delivery) == ("tool_error", "unknown")

    def test_it_is_the_same_after_json(self) -> None:
        result = ToolResult(json.loads(json.dumps(ToolResult.from_error(ServerCrashed("gone", delivery="unknown")))))
        with pytest.raises(ServerCrashed, match="gone"):
            result.raise_for_error()

    def test_a_word_of_a_later_version_is_kept(self) -> None:
        with pytest.raises(MCPError) as raised:
            ToolResult({**FAILED, "error_type": "of_tomorrow"}).raise_for_error()
        assert raised.value.error_type == "of_tomorrow"

    def test_a_login_is_told_from_other_answers_over_http(self) -> None:
        with pytest.raises(errors.NeedsAuthorization):
            ToolResult.from_error(errors.NeedsAuthorization("log in")).raise_for_error()
        with pytest.raises(HttpError):
            ToolResult.from_error(HttpError("502", status=502)).raise_for_error()
