"""Failures of calls whose connection to a host broke are passed on only if the host lives."""

from typing import Any

import pytest

from gaia.http.errors import HttpClientError
from gaia.http.waits import Wait, run
from gaia.mcp.errors import AnswerLost, HttpError, MCPError
from gaia.mcp.placement.lost_answers import LostAnswers

LOST = AnswerLost("the connection broke before the answer")
BROKEN = HttpClientError("the connection broke")


class Host:
    """Answers questions as the test says, as connection, as signal that the owner leaves, and as listener."""

    def __init__(self, *answers: int | HttpClientError) -> None:
        self._answers = list(answers)
        self.passed_on: list[int] = []
        self.asked = 0
        self.lost = LostAnswers(self, self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def settle(self) -> None:
        run(self.lost.settle(self, "http://127.0.0.1:1", self))  # type: ignore[arg-type]

    async def request(self, *_: Any, **__: Any) -> "Host":
        self.status = self._answers.pop(0)
        if isinstance(self.status, HttpClientError):
            raise self.status
        return self

    async def read(self) -> bytes:
        return b""

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def within(self, _: float) -> Wait:
        """The owner leaves after the last answer."""
        leaves = not self._answers

        class Told(Wait):
            def here(self) -> bool:
                return leaves

        return Told()

    def message_received(self, *_: Any) -> None:
        pass

    def channel_ended(self) -> None:
        pass

    def awaits_answers(self) -> bool:
        return True

    def request_failed(self, call_id: int, _: MCPError) -> None:
        self.passed_on.append(call_id)


def test_a_host_that_lives_answers_for_all_calls_that_were_lost() -> None:
    host = Host(BROKEN, 200)
    host.lost.request_failed(1, LOST)
    host.lost.request_failed(2, LOST)
    assert (host.asked, host.passed_on) == (1, [])
    host.settle()
    assert host.passed_on == [1, 2]
    host.lost.request_failed(3, LOST)
    assert host.asked == 2


@pytest.mark.parametrize("answer", [BROKEN, 410])
def test_a_host_that_has_ended_has_its_calls_taken_back_with_the_channel(answer: int | HttpClientError) -> None:
    host = Host(answer)
    host.lost.request_failed(1, LOST)
    host.settle()
    assert host.passed_on == []


def test_other_failures_are_passed_on_at_once() -> None:
    host = Host()
    host.lost.request_failed(1, HttpError("the request cannot be sent"))
    assert (host.asked, host.passed_on) == (0, [1])
