"""What a function of a test can do with the request that it answers."""

import json
from typing import Any

import pytest

from gaia.agents.base.mcp_context import InputRequired, MCPCapabilityMissing
from gaia.testing.fake_context import FakeContext, FakeRequests

Json = dict[str, Any]


class Client:
    """Notes what it is sent, and answers each question with its own params."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Json]] = []
        self.requests = FakeRequests(self._asked)

    def _asked(self, line: bytes) -> None:
        request = json.loads(line)
        self.requests.answered({"id": request["id"], "result": request["params"]})

    def notify(self, method: str, params: Json) -> None:
        self.told.append((method, params))


def make(client: Client, params: Json | None = None, meta: Json | None = None) -> FakeContext:
    context = FakeContext(7, "tools/call", {**(params or {}), "_meta": meta or {}}, client.requests, client.notify)
    context.client_capabilities = {"elicitation": {}}
    return context


def test_progress_is_sent_to_those_who_want_it() -> None:
    client = Client()
    make(client).report_progress(1)
    make(client, meta={"progressToken": "t"}).report_progress(1, message="one")
    assert client.told == [("notifications/progress", {"progressToken": "t", "progress": 1, "message": "one"})]


def test_a_cancelled_request_reports_nothing() -> None:
    client = Client()
    context = make(client, meta={"progressToken": "t"})
    told: list[str] = []
    context.on_cancel(lambda: told.append("cancelled"))
    assert not context.cancelled
    context.scope.cancel()
    context.report_progress(1)
    assert (context.cancelled, told, client.told) == (True, ["cancelled"], [])


def test_log_messages_are_sent_from_the_level_that_the_request_wants() -> None:
    client = Client()
    context = make(client, meta={"io.modelcontextprotocol/logLevel": "error"})
    context.log("info", {"a": 1})
    context.log("error", {"a": 2})
    make(client).log("error", "text")
    assert client.told == [("notifications/message", {"level": "error", "data": {"a": 2}, "logger": "fake"})]


def test_a_log_level_that_does_not_exist_is_refused_as_by_a_real_server() -> None:
    with pytest.raises(ValueError, match="no log level 'loud'; levels are debug, info"):
        make(Client()).log("loud", "text")


def test_questions_are_asked_and_answered() -> None:
    assert make(Client()).elicit("Name?", {"type": "object"})["message"] == "Name?"


def test_in_the_stateless_era_only_open_questions_are_asked() -> None:
    params = {"requestState": '{"first": {"action": "accept"}}', "inputResponses": {"second": {"action": "decline"}}}
    context = make(Client(), params)
    context.is_stateless = True
    assert context.elicit("?", {}, key="first") == {"action": "accept"}
    assert context.elicit("?", {}, key="second") == {"action": "decline"}
    with pytest.raises(InputRequired) as required:
        context.elicit("?", {}, key="third")
    assert list(required.value.requests) == ["third"]


def test_a_client_is_asked_only_what_it_can_be_asked() -> None:
    with pytest.raises(MCPCapabilityMissing, match="roots"):
        make(Client()).list_roots()


def test_work_ends_when_the_request_is_cancelled() -> None:
    context = make(Client())
    ended: list[int] = []
    context.work_begins(lambda: ended.append(1))
    context.scope.cancel()
    assert ended == [1]
