"""The requests of a fake server: each answer goes to the thread that asked."""

import json
from typing import Any

import pytest

from gaia.agents.base.mcp_context import MCPRequestCancelled
from gaia.mcp.errors import JsonRpcError
from gaia.runtime.cancellation import CancelScope
from gaia.testing.fake_context import FakeRequests

QUESTION = {"method": "elicitation/create", "params": {"message": "Name?"}}


class Client:
    """Answers each request at once, with what `answers` has for it; not at all if there is nothing."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.requests = FakeRequests(self._written)
        self.asked: list[dict[str, Any]] = []
        self._answers = list(answers)

    def _written(self, line: bytes) -> None:
        request = json.loads(line)
        self.asked.append(request)
        if self._answers:
            self.requests.answered({"jsonrpc": "2.0", "id": request["id"], **self._answers.pop(0)})


def test_each_request_has_an_id_of_its_own_and_gets_its_answer() -> None:
    client = Client({"result": {"first": 1}}, {"result": {"second": 2}})

    assert client.requests.ask(QUESTION, CancelScope()) == {"first": 1}
    assert client.requests.ask(QUESTION, CancelScope()) == {"second": 2}
    assert client.asked[0]["id"] != client.asked[1]["id"]
    assert {name: client.asked[0][name] for name in QUESTION} == QUESTION


def test_an_error_is_raised() -> None:
    client = Client({"error": {"code": -32603, "message": "no"}})
    with pytest.raises(JsonRpcError, match="no"):
        client.requests.ask(QUESTION, CancelScope())


def test_a_request_ends_with_its_scope_and_an_answer_after_that_is_dropped() -> None:
    client, scope = Client(), CancelScope()
    scope.cancel()
    with pytest.raises(MCPRequestCancelled):
        client.requests.ask(QUESTION, scope)

    client.requests.answered({"id": client.asked[0]["id"], "result": {}})


def test_an_answer_to_nothing_is_dropped() -> None:
    client = Client({"result": {"first": 1}})
    client.requests.answered({"id": "fake-1", "result": {"early": 1}})

    assert client.requests.ask(QUESTION, CancelScope()) == {"first": 1}
