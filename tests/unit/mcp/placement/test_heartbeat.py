"""An owner's heartbeat: what it tells a host, and when it gives the host up."""

from typing import Any

import msgspec
import pytest

from gaia.http.errors import HttpClientError
from gaia.http.waits import Wait, run
from gaia.mcp.placement.engine import Launch
from gaia.mcp.placement.heartbeat import Heartbeat
from gaia.mcp.placement.lease import Beat, HostState

LAUNCH = Launch(name="it", entry={"command": "server"}, token="t", lease=30.0)
FAILS = HttpClientError("the connection broke")


def state(clock: float, owners: int = 1) -> tuple[int, bytes]:
    found = HostState(state="ready", pid=5, generation=1, restarts=0, owners=owners, clock=clock)
    return 200, msgspec.json.encode(found)


class Response:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body

    async def read(self) -> bytes:
        return self._body

    def __enter__(self) -> "Response":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Host:
    """Answers as the test says, as connection, as signal that the owner leaves, and as the channel's reactions."""

    def __init__(self, *answers: tuple[int, bytes] | HttpClientError, late: float = 10.0) -> None:
        """A request that fails takes `late` seconds."""
        self._answers = list(answers)
        self._late = late
        self.now = 1000.0
        self.asked: list[tuple[str, Any]] = []
        self.pauses: list[float] = []
        self.events: list[str] = []
        self.heartbeat = Heartbeat(LAUNCH, "http://127.0.0.1:1", "t", self, self, lambda: self.now)  # type: ignore[arg-type]
        run(self.heartbeat.run(self))  # type: ignore[arg-type]

    async def request(self, method: str, _url: Any, _headers: Any, body: bytes, **_: Any) -> Response:
        self.asked.append((method, msgspec.json.decode(body, type=Beat) if body else None))
        answer = self._answers.pop(0)
        if isinstance(answer, HttpClientError):
            self.now += self._late
            raise answer
        return Response(*answer)

    def close(self) -> None:
        self.events.append("closed")

    def within(self, seconds: float) -> Wait:
        """The owner leaves with the last answer."""
        self.pauses.append(seconds)
        leaves = len(self._answers) == 1

        class Told(Wait):
            def here(self) -> bool:
                return leaves

        return Told()

    def host_answered(self) -> None:
        self.events.append("answered")

    def host_lost(self, cause: str) -> None:
        self.events.append(cause)

    def host_unreachable(self) -> None:
        self.events.append("unreachable")


def test_the_first_beat_asks_for_the_clock_and_the_second_extends_the_lease() -> None:
    host = Host(state(100.0), state(101.0), state(111.0), state(112.0, owners=1))
    (_, first), (_, second), (_, third), (last, _) = host.asked
    assert (first.clock, second.clock, third.clock, last) == (None, 100.0, 101.0, "DELETE")
    assert first.settings is not None
    assert second.settings is None
    assert host.pauses == [0.0, 10.0, 10.0]
    assert host.events == ["answered", "closed"]
    assert host.heartbeat.fence == host.now + 30
    assert host.heartbeat.left.is_open


@pytest.mark.parametrize(("owners", "was_last"), [(0, True), (2, False)])
def test_the_last_owner_knows_that_it_was_the_last(owners: int, was_last: bool) -> None:
    assert Host(state(1.0), state(1.0), state(2.0, owners)).heartbeat.was_last is was_last


def test_a_host_that_does_not_answer_for_its_lease_is_lost() -> None:
    host = Host(state(1.0), state(1.0), FAILS, FAILS, FAILS, state(9.0))
    assert host.events[-2:] == ["has not answered for its lease of 30 s", "closed"]
    assert host.events.count("unreachable") == 3
    assert max(host.pauses[2:]) < 1, "it is tried again at once"


def test_a_host_that_refuses_connections_for_less_than_its_lease_is_not_lost() -> None:
    host = Host(state(1.0), state(1.0), *[FAILS] * 29, state(2.0), state(3.0), late=1.0)
    assert host.events == ["answered", *["unreachable"] * 29, "closed"]


def test_a_program_that_was_stopped_tries_more_than_once() -> None:
    host = Host(state(1.0), state(1.0), FAILS, FAILS, state(2.0), state(3.0), late=100.0)
    assert host.events == ["answered", "unreachable", "unreachable", "closed"]


def test_a_host_that_answers_again_is_not_lost() -> None:
    host = Host(state(1.0), state(1.0), FAILS, FAILS, state(2.0), FAILS, state(3.0), state(4.0))
    assert host.events == ["answered", "unreachable", "unreachable", "unreachable", "closed"]


def test_a_host_that_has_never_answered_is_tried_for_as_long_as_it_takes() -> None:
    host = Host(*[FAILS] * 10, state(1.0), state(1.0), state(1.0))
    assert host.events == ["unreachable"] * 10 + ["answered", "closed"]


def test_a_host_whose_lease_is_over_is_lost() -> None:
    assert Host(state(1.0), (410, b"{}"), state(1.0)).events == ["ended with its host, whose lease was over", "closed"]


@pytest.mark.parametrize("answer", [(200, b"junk"), (200, b"{}"), (409, b"{}")])
def test_a_host_that_answers_with_something_else_is_lost(answer: tuple[int, bytes]) -> None:
    host = Host(state(1.0), answer, state(2.0))
    assert "answers its heartbeats with something else" in str(host.events)
    assert Host(state(1.0), state(2.0), answer).events[-1] == "closed", "also when the owner leaves"


def test_a_host_with_other_settings_is_lost_by_their_names() -> None:
    host = Host((409, b'["cwd", "env"]'), state(1.0))
    assert host.events[0].endswith("give all programs the same: cwd, env")
    assert host.heartbeat.is_refused
