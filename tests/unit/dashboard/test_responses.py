"""What the page is sent, whatever a server's values are."""

import json
from typing import Any

import pytest

from gaia.dashboard import responses


@pytest.mark.parametrize(
    "value",
    [2**80, -(2**70), "half \ud800", {"\ud800": [2**64]}, {"deep": [{"text": "ü \u2028 </script>"}]}, None],
)
def test_each_value_of_a_server_is_sent_as_it_is(value: Any) -> None:
    assert json.loads(responses.encode(value)) == value


def test_what_is_no_json_value_becomes_text() -> None:
    class Thing:
        def __str__(self) -> str:
            return "a thing"

    assert json.loads(responses.encode({"it": Thing()})) == {"it": "a thing"}
    assert json.loads(responses.encode({"it": Thing(), "big": 2**80})) == {"it": "a thing", "big": 2**80}


@pytest.mark.parametrize("text", ["one\ntwo", "one\r\n\r\nevent: snapshot", "\u2028", "\ud800\n"])
def test_a_text_with_line_breaks_begins_no_event_of_its_own(text: str) -> None:
    written = responses.event("call", {"text": text})

    assert written.count(b"\n") == 3
    assert b"\r" not in written
    kind, data = written.decode().strip().split("\n")
    assert kind == "event: call"
    assert json.loads(data.removeprefix("data: ")) == {"text": text}


def test_a_problem_is_told_in_the_form_of_the_guard() -> None:
    answer = responses.problem(404, "There is no server 'x'")

    assert (answer.status_code, answer.media_type) == (404, "application/json")
    assert json.loads(bytes(answer.body)) == {"error": {"message": "There is no server 'x'"}}


def test_scripts_come_from_this_server_only() -> None:
    policy = dict(part.strip().split(" ", 1) for part in responses.HEADERS["content-security-policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not {"unsafe-inline", "unsafe-eval"} & set(" ".join(policy.values()).replace("'", "").split())
