"""Questions to a person: reading them, and answers that fit."""

from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal
from gaia.mcp.protocol.server_questions import (
    ElicitationAnswer,
    ElicitationRequest,
    SamplingRequest,
    elicitation_request,
    elicitation_result,
    root_list,
    sampling_request,
    sampling_result,
)

FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}, "sure": {"default": False}},
    "required": ["name", "age"],
}
ASKED = {"message": "Who?", "requestedSchema": FORM}
LINK = {"mode": "url", "message": "Pay", "url": "https://example.com/pay", "elicitationId": "e-1"}


def form(**properties: Any) -> ElicitationRequest:
    return ElicitationRequest(server="s", message="Who?", requested_schema={"type": "object", "properties": properties})


class TestReading:
    def test_a_question_without_a_mode_is_a_form_and_one_with_a_url_has_an_id(self) -> None:
        request = elicitation_request("time", ASKED, ("form",))
        assert (request.server, request.mode, request.message) == ("time", "form", "Who?")
        assert request.requested_schema == FORM
        request = elicitation_request("time", LINK, ("form", "url"))
        assert (request.mode, request.url, request.elicitation_id) == ("url", "https://example.com/pay", "e-1")

    @pytest.mark.parametrize(
        ("params", "mode"),
        [
            ({**ASKED, "url": 5, "elicitationId": []}, "form"),
            ({**LINK, "requestedSchema": "none"}, "url"),
            ({**ASKED, "mode": ""}, "form"),
        ],
    )
    def test_what_belongs_to_the_other_mode_means_nothing(self, params: Any, mode: str) -> None:
        request = elicitation_request("time", params, ("form", "url"))
        assert request.mode == mode
        assert (request.url is None, request.elicitation_id is None) == ((mode == "form",) * 2)
        assert request.requested_schema == (FORM if mode == "form" else {})

    @pytest.mark.parametrize(
        ("params", "modes", "complaint"),
        [
            (LINK, ("form",), "mode: the client offers"),
            (ASKED, ("url",), "mode: the client offers"),
            ({"mode": "poem"}, ("form",), "mode: the client offers"),
            ({"message": "Pay", "mode": 7}, ("form", "url"), "mode: the client offers"),
            ({"requestedSchema": FORM}, ("form", "url"), "missing required field `message`"),
            ({"message": 5, "requestedSchema": FORM}, ("form", "url"), r"`int` - at `\$\.message`"),
            ({"message": "Who?"}, ("form", "url"), "requestedSchema: missing"),
            ({"message": "?", "requestedSchema": {"type": "x"}}, ("form",), "requestedSchema: it is no valid schema"),
            ({"message": "Pay", "mode": "url"}, ("form", "url"), "url: only https"),
        ],
    )
    def test_a_malformed_question_or_one_of_a_mode_that_is_not_offered_is_refused(
        self, params: Any, modes: Any, complaint: str
    ) -> None:
        with pytest.raises(Refusal, match=complaint) as refused:
            elicitation_request("time", params, modes)
        assert refused.value.code == INVALID_PARAMS


class TestAnswering:
    def test_what_is_left_out_gets_the_defaults_of_the_schema(self) -> None:
        request = elicitation_request("time", ASKED, ("form",))
        assert request.accept({"name": "Ann"}).content == {"name": "Ann", "age": 30, "sure": False}
        assert request.accept({"name": "Ann", "age": 5}).content == {"name": "Ann", "age": 5, "sure": False}

    def test_what_does_not_fit_the_form_says_where(self) -> None:
        request = elicitation_request("time", ASKED, ("form",))
        with pytest.raises(ValueError, match="form of server 'time': 'name' is a required property"):
            request.accept({})
        with pytest.raises(ValueError, match="age: 'old' is not of type 'integer'"):
            request.accept({"name": "Ann", "age": "old"})

    def test_a_form_that_cannot_be_checked_can_be_answered(self) -> None:
        request = form(a={"type": "string", "not": {"pattern": "(?=a)"}})
        assert request.accept({"a": "b"}).content == {"a": "b"}

    @pytest.mark.parametrize(
        "url",
        [
            "javascript:alert(1)", "JavaScript://example.com/%0aalert(1)", "file:///etc/passwd", "data:text/html,a",
            "vscode://open", "ftp://example.com", "http://example.com", "http://127.0.0.1.example.com", "https://",
            "https:example.com", "//example.com", "example.com", "", " https://example.com", "https://[::1",
            "java\nscript:alert(1)", "https://example.com/\u202egnp.exe", "https://exam\tple.com", "smb://host/share",
            "https://bank.example@example.com", "https://user:password@example.com", "http://example.com\\@127.0.0.1",
            "https://example.com\\@bank.example", "http://localhost:80:90", "https://%65xample.com",
        ],
    )  # fmt: skip
    def test_a_url_that_is_no_web_page_is_refused(self, url: str) -> None:
        with pytest.raises(Refusal, match="only https"):
            elicitation_request("time", {**LINK, "url": url}, ("url",))

    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com/pay?a=b#c",
            "HTTPS://example.com",
            "http://localhost:8000/",
            "http://[::1]:1/",
            "http://127.0.0.2",
        ],
    )
    def test_https_is_shown_and_http_on_this_machine(self, url: str) -> None:
        assert elicitation_request("time", {**LINK, "url": url}, ("url",)).url == url

    def test_a_host_with_letters_that_look_like_others_is_shown_in_ascii(self) -> None:
        request = elicitation_request("time", {**LINK, "url": "https://p\u0430ypal.com/a"}, ("url",))
        assert request.url == "https://xn--pypal-4ve.com/a"

    def test_a_url_is_accepted_without_content(self) -> None:
        request = elicitation_request("time", LINK, ("url",))
        assert elicitation_result(request, request.accept()) == {"action": "accept"}
        with pytest.raises(ValueError, match="without content"):
            request.accept({"name": "Ann"})

    @pytest.mark.parametrize(
        ("answer", "result"),
        [
            (ElicitationAnswer("accept", {"a": 1}), {"action": "accept", "content": {"a": 1}}),
            ({"action": "accept", "content": {"a": 1}}, {"action": "accept", "content": {"a": 1}}),
            ({"action": "accept"}, {"action": "accept", "content": {}}),
            ({"action": "decline"}, {"action": "decline"}),
            ({"action": "decline", "content": {"a": 1}}, {"action": "decline"}),
            (None, {"action": "cancel"}),
            (form().decline(), {"action": "decline"}),
            (form().cancel(), {"action": "cancel"}),
        ],
    )
    def test_user_code_answers_with_a_value_a_dict_or_nothing(self, answer: object, result: Any) -> None:
        assert elicitation_result(form(a={"type": "integer"}), answer) == result

    @pytest.mark.parametrize("answer", ["accept", 5, {"action": "perhaps"}, {}, {"action": "accept", "content": [1]}])
    def test_anything_else_is_an_error_of_user_code(self, answer: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            elicitation_result(form(), answer)

    def test_so_is_a_dict_that_does_not_fit_the_form(self) -> None:
        with pytest.raises(ValueError, match="a: 'x' is not of type 'integer'"):
            elicitation_result(form(a={"type": "integer"}), {"action": "accept", "content": {"a": "x"}})


HELLO = {"role": "user", "content": {"type": "text", "text": "Hello"}}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "toolUseId": "t1", "content": []}]}


def sampling(*, offered: bool = True, **params: Any) -> SamplingRequest:
    return sampling_request("time", {"messages": [HELLO], "maxTokens": 10, **params}, tools=offered)


class TestReadingSampling:
    def test_everything_that_a_server_may_say_is_there(self) -> None:
        request = sampling(
            systemPrompt="Be kind",
            modelPreferences={"hints": [{"name": "small"}]},
            temperature=0,
            stopSequences=["."],
            includeContext="none",
            metadata={"a": 1},
            tools=[{"name": "look"}],
            toolChoice={"mode": "auto"},
        )
        assert request == SamplingRequest(
            server="time",
            messages=[HELLO],
            max_tokens=10,
            system_prompt="Be kind",
            model_preferences={"hints": [{"name": "small"}]},
            temperature=0,
            stop_sequences=["."],
            include_context="none",
            metadata={"a": 1},
            tools=[{"name": "look"}],
            tool_choice={"mode": "auto"},
        )

    @pytest.mark.parametrize("params", [{"tools": [{"name": "look"}]}, {"tools": []}, {"toolChoice": {}}])
    def test_tools_that_are_not_offered_are_refused(self, params: Any) -> None:
        with pytest.raises(Refusal, match="sampling with tools"):
            sampling(offered=False, **params)

    @pytest.mark.parametrize(
        "params",
        [
            {"messages": None},
            {"messages": "Hello"},
            {"messages": ["Hello"]},
            {"messages": [{"role": "system", "content": {}}]},
            {"messages": [{"role": "user", "content": "Hello"}]},
            {"maxTokens": None},
            {"maxTokens": "10"},
            {"maxTokens": True},
            {"temperature": "hot"},
            {"temperature": True},
            {"systemPrompt": 1},
        ],
    )
    def test_a_malformed_request_is_refused(self, params: Any) -> None:
        with pytest.raises(Refusal) as refused:
            sampling(**params)
        assert refused.value.code == INVALID_PARAMS


class TestToolResults:
    def test_the_result_follows_the_use(self) -> None:
        assert len(sampling(messages=[HELLO, USE, RESULT]).messages) == 3

    @pytest.mark.parametrize(
        "messages",
        [
            [HELLO, USE],
            [HELLO, USE, HELLO],
            [HELLO, RESULT],
            [USE, {"role": "user", "content": [*RESULT["content"], HELLO["content"]]}],  # type: ignore[misc]
            [USE, {"role": "user", "content": [{"type": "tool_result", "toolUseId": "t2"}]}],
            [{"role": "assistant", "content": [{"type": "tool_use"}]}],
        ],
        ids=["missing", "something else", "without use", "mixed", "of another use", "without id"],
    )
    def test_anything_else_is_refused(self, messages: Any) -> None:
        with pytest.raises(Refusal, match="messages: ") as refused:
            sampling(messages=messages)
        assert refused.value.code == INVALID_PARAMS


def test_a_text_of_a_model_is_a_result_none_a_rejection_and_anything_else_an_error_of_user_code() -> None:
    assert sampling_result(sampling().answer("Hi", model="small")) == {
        "role": "assistant",
        "content": {"type": "text", "text": "Hi"},
        "model": "small",
        "stopReason": "endTurn",
    }
    with pytest.raises(Refusal) as refused:
        sampling_result(None)
    assert refused.value.code == -1
    for answer in ("Hi", {}, {"role": "assistant", "model": "m"}, {"content": {}, "role": "user"}):
        with pytest.raises(TypeError, match=r"sampling"):
            sampling_result(answer)


def test_paths_become_uris_with_the_folders_name_and_uris_stay_as_they_are(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert root_list([folder, str(folder)]) == {"roots": [{"uri": folder.as_uri(), "name": "a b"}] * 2}
    assert folder.as_uri().endswith("/a%20b")
    uris = [root["uri"] for root in root_list(["notes", "~/notes"])["roots"]]
    assert uris == [(Path.cwd() / "notes").as_uri(), (home / "notes").as_uri()]
    roots = ["file:///a", {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]
    assert root_list(roots)["roots"] == [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]


@pytest.mark.parametrize("root", ["https://example.com", {"uri": "http://x"}, {"name": "x"}, {"uri": 5}, 5, None])
def test_only_files_can_be_roots(root: Any) -> None:
    with pytest.raises(ValueError, match="roots: "):
        root_list([root])
