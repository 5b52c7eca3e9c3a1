"""Questions to a person: reading them, and answers that fit."""

from typing import Any

import pytest

from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal
from gaia.mcp.protocol.server_questions import (
    ElicitationAnswer,
    ElicitationRequest,
    elicitation_request,
    elicitation_result,
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
    def test_a_question_without_a_mode_is_a_form(self) -> None:
        request = elicitation_request("time", ASKED, ("form",))
        assert (request.server, request.mode, request.message) == ("time", "form", "Who?")
        assert request.requested_schema == FORM

    def test_a_question_with_a_url_has_an_id(self) -> None:
        request = elicitation_request("time", LINK, ("form", "url"))
        assert (request.mode, request.url, request.elicitation_id) == ("url", "https://example.com/pay", "e-1")

    @pytest.mark.parametrize(("params", "modes"), [(LINK, ("form",)), (ASKED, ("url",)), ({"mode": "poem"}, ("form",))])
    def test_a_mode_that_is_not_offered_is_refused(self, params: Any, modes: Any) -> None:
        with pytest.raises(Refusal, match="mode: the client offers") as refused:
            elicitation_request("time", params, modes)
        assert refused.value.code == INVALID_PARAMS

    @pytest.mark.parametrize(
        ("params", "complaint"),
        [
            ({"requestedSchema": FORM}, "missing required field `message`"),
            ({"message": 5, "requestedSchema": FORM}, r"`int` - at `\$\.message`"),
            ({"message": "Who?"}, "requestedSchema: missing"),
            ({"message": "Who?", "requestedSchema": {"type": "nonsense"}}, "requestedSchema: it is no valid schema"),
            ({"message": "Pay", "mode": "url"}, "url: only https"),
            ({"message": "Pay", "mode": 7}, "mode: the client offers"),
        ],
    )
    def test_a_malformed_question_is_refused(self, params: Any, complaint: str) -> None:
        with pytest.raises(Refusal, match=complaint) as refused:
            elicitation_request("time", params, ("form", "url"))
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
