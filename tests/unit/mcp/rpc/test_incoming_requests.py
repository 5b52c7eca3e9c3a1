"""Requests of a server: each is answered once, and recorded once."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND, Request
from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.rpc.incoming_requests import IncomingRequests
from tests.tracing import Tracing

PING, ROOTS = Request(1, "ping", {}), Request(2, "roots/list", {})


class Fixture:
    """The requests of one connection, what the client is told of them, and what is sent."""

    def __init__(self) -> None:
        self.known = True
        self.told: list[Request] = []
        self.sent: list[dict[str, Any]] = []
        self.items: list[Outgoing] = []
        self.reads = True
        """Whether the server reads what it is sent."""
        self.room = True
        """Whether the channel takes anything."""
        self.requests = IncomingRequests(self._tell, self._send, lambda _: None, Observer("s"), None)

    def _tell(self, request: Request) -> bool:
        self.told.append(request)
        return self.known

    def _send(self, item: Outgoing) -> bool:
        self.items.append(item)
        if self.reads:
            assert item.begin_write()
        self.sent.append(json.loads(item.frame))
        return self.room


@pytest.fixture
def test(tracing: Tracing) -> Fixture:
    return Fixture()


def ended(tracing: Tracing) -> list[Any]:
    """The error types of the requests that were recorded."""
    return [(span.attributes or {}).get("error.type") for span in tracing.all]


def test_ping_is_answered_without_the_client(test: Fixture, tracing: Tracing) -> None:
    test.requests.received(PING)
    assert test.sent == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert test.told == []
    assert ended(tracing) == [None]


def test_what_the_client_takes_is_open_until_it_is_answered(test: Fixture, tracing: Tracing) -> None:
    test.requests.received(ROOTS)
    assert (test.told, test.sent, ended(tracing)) == ([ROOTS], [], [])
    test.requests.answer(ROOTS, {"roots": []})
    assert test.sent == [{"jsonrpc": "2.0", "id": 2, "result": {"roots": []}}]
    assert ended(tracing) == [None]


def test_what_it_does_not_take_is_an_unknown_method(test: Fixture, tracing: Tracing) -> None:
    test.known = False
    test.requests.received(ROOTS)
    (refusal,) = test.sent
    assert (refusal["id"], refusal["error"]["code"]) == (2, METHOD_NOT_FOUND)
    assert len(ended(tracing)) == 1


def test_a_result_that_is_no_json_is_not_sent_and_can_still_be_refused(test: Fixture) -> None:
    test.requests.received(ROOTS)
    with pytest.raises(ValueError, match="JSON"):
        test.requests.answer(ROOTS, {"roots": object()})
    assert test.sent == []
    test.requests.refuse(ROOTS, -32603, "no")
    assert [sent["error"] for sent in test.sent] == [{"code": -32603, "message": "no"}]


def test_what_the_server_withdraws_is_not_answered(test: Fixture, tracing: Tracing) -> None:
    test.requests.received(ROOTS)
    test.requests.withdraw(ROOTS)
    assert (test.sent, ended(tracing)) == ([], ["cancelled"])


def test_requests_with_the_same_id_end_apart(test: Fixture, tracing: Tracing) -> None:
    first, second = Request(5, "roots/list", {}), Request(5, "roots/list", {})
    test.requests.received(first)
    test.requests.received(second)
    test.requests.refuse(second, -32603, "in use")
    assert ended(tracing) == ["-32603"]
    test.requests.answer(first, {})
    assert sorted(map(str, ended(tracing))) == ["-32603", "None"]


def test_the_end_of_the_connection_ends_what_is_open_once(test: Fixture, tracing: Tracing) -> None:
    test.requests.received(ROOTS)
    test.requests.close()
    test.requests.close()
    test.requests.withdraw(ROOTS)
    assert ended(tracing) == ["connection_closed"]


class TestAServerThatAsksAndDoesNotRead:
    def test_few_responses_wait_for_it_and_that_is_said_once(
        self, test: Fixture, caplog: pytest.LogCaptureFixture
    ) -> None:
        test.reads = False
        with caplog.at_level(logging.WARNING):
            for number in range(5_000):
                test.requests.received(Request(number, "ping", {}))
        assert len(test.sent) == 256
        assert caplog.text.count("answers_dropped") == 1

    def test_it_gets_responses_again_when_it_reads(self, test: Fixture) -> None:
        test.reads = False
        for number in range(300):
            test.requests.received(Request(number, "ping", {}))
        for item in test.items:
            assert item.begin_write()
        # The writer had begun with one that did not fit into the pipe.
        test.items[-1].undo_write()
        test.sent.clear()
        for number in range(300):
            test.requests.received(Request(number, "ping", {}))
        assert len(test.sent) == 255

    def test_nor_do_long_ones_wait(self, test: Fixture) -> None:
        test.reads = False
        for number in range(10):
            request = Request(number, "roots/list", {})
            test.requests.received(request)
            test.requests.answer(request, {"text": "x" * 6_000_000})
        assert len(test.sent) == 2

    def test_one_alone_may_be_longer(self, test: Fixture) -> None:
        test.requests.received(ROOTS)
        test.requests.answer(ROOTS, {"text": "x" * 20_000_000})
        assert len(test.sent) == 1

    def test_what_the_channel_does_not_take_does_not_wait(self, test: Fixture) -> None:
        test.reads = test.room = False
        for number in range(1_000):
            test.requests.received(Request(number, "ping", {}))
        assert len(test.sent) == 1_000

    def test_a_long_method_is_not_repeated(self, test: Fixture) -> None:
        test.known = False
        test.requests.received(Request(1, "x" * 10_000, {}))
        assert len(test.sent[0]["error"]["message"]) < 200
