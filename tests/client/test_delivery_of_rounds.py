"""A stateless server acts on the first round of a call, requires input, and is lost.

Whatever becomes of the next round, the call may have taken effect: every way of calling says ``unknown``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.client import MCPClient
from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.upstream.upstream import Upstream
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import RequestExchange, Step
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.runtime.cancellation import CancelScope
from gaia.testing import FakeClock
from tests.fake_transport import FakeTransport, stateless_answers
from tests.gateway.client_of_upstream import Requester
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

FORM = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
NAMED = {"action": "accept", "content": {"name": "Ann"}}
TIMEOUT = 5.0


class Interrupted:
    """A call whose server acted, required input and was lost, while a person thinks about the input."""

    def __init__(self, face: str, clock: FakeClock, **settings: Any) -> None:
        self.clock = clock
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.transport = FakeTransport(timeout=TIMEOUT, answers=stateless_answers())
        self.client = MCPClient(
            "fake",
            self.transport,
            protocol="stateless",
            clock=clock,
            health_interval=1_000_000.0,
            on_elicitation=self._think,
            **settings,
        )
        assert self.client.connect(), self.client.last_error
        self.threads = ThreadPoolExecutor(4, "test-caller")
        self.scope = CancelScope()
        self.error: Future[MCPError] = self.threads.submit(self._call, getattr(self, face))
        channel = self.transport.channel()
        self.first = channel.wait_for("tools/call")
        channel.answer(
            self.first, {"resultType": "input_required", "requestState": "s", "inputRequests": {"who": FORM}}
        )
        assert self.asked.wait(PATIENCE)
        # The process is still being ended, so the next round has to wait.
        channel.hold_closing()
        channel.end(exit_code=1)
        channel.wait_until_closing()

    def _think(self, request: Any) -> Any:
        self.asked.set()
        assert self.may_answer.wait(PATIENCE)
        return request.accept({"name": "Ann"})

    def _call(self, face: Callable[[], object]) -> MCPError:
        with self.scope.entered(), pytest.raises(MCPError) as raised:
            face()
        return raised.value

    # The faces.

    def call_tool(self) -> None:
        self.client.call_tool("echo").raise_for_error()

    def request(self) -> None:
        self.client.request("tools/call", {"name": "echo"})

    def submit_tool(self) -> None:
        self.client.submit_tool("echo").result(PATIENCE)

    def awaited(self) -> None:
        async def main() -> None:
            (await AsyncMCPClient.over(self.client).call_tool("echo")).raise_for_error()

        asyncio.run(main())

    def gateway(self) -> None:
        async def main() -> None:
            requester = Requester().send(Upstream(self.client), "tools/call", {"name": "echo"})
            _, _, answer = await requester.question()
            self.asked.set()
            await asyncio.to_thread(self.may_answer.wait, PATIENCE)
            answer(NAMED, None)
            relayed = await requester.relayed()
            assert relayed.error is not None
            raise relayed.error

        asyncio.run(main())

    # What happens then.

    def answer(self) -> None:
        """The person answers, and the next round waits for the next process."""
        self.may_answer.set()
        assert wait_until(lambda: self.error.done() or self.client.status.queued > 0)

    def outcome(self) -> tuple[str, str]:
        error = self.error.result(PATIENCE)
        return error.error_type, error.delivery

    def close(self) -> None:
        self.may_answer.set()
        self.transport.channel().let_close()
        self.client.disconnect()
        self.threads.shutdown()


Make = Callable[..., Interrupted]


@pytest.fixture
def make(fake_clock: FakeClock) -> Iterator[Make]:
    made: list[Interrupted] = []

    def make(face: str, **settings: Any) -> Interrupted:
        made.append(Interrupted(face, fake_clock, **settings))
        return made[-1]

    yield make
    for interrupted in made:
        interrupted.close()


FACES = pytest.mark.parametrize("face", ["call_tool", "request", "submit_tool", "awaited", "gateway"])


@FACES
def test_the_deadline_passes_before_the_next_round_is_sent(make: Make, face: str, fake_clock: FakeClock) -> None:
    call = make(face)
    call.answer()
    fake_clock.wait_for_waiter(fake_clock.monotonic() + TIMEOUT)
    fake_clock.advance(TIMEOUT)
    assert call.outcome() == ("timeout", "unknown")


@FACES
def test_the_server_is_not_started_again(make: Make, face: str) -> None:
    call = make(face, restart_policy=RestartPolicy(restart="never"))
    call.transport.channel().let_close()
    assert wait_until(lambda: call.client.state is ServerState.FAILED)
    call.answer()
    assert call.outcome() == ("server_unavailable", "unknown")


@FACES
def test_too_many_calls_wait(make: Make, face: str) -> None:
    # The subscription of the client takes a place, too.
    call = make(face, max_pending=2)
    waiting = [call.client.submit_tool("echo") for _ in range(2)]
    call.may_answer.set()
    assert call.outcome() == ("overloaded", "unknown")
    assert all(one.cancel() for one in waiting)


@FACES
def test_the_client_is_disconnected(make: Make, face: str) -> None:
    call = make(face)
    call.answer()
    stopped = call.threads.submit(call.client.disconnect)
    assert call.outcome() == ("cancelled", "unknown")
    call.transport.channel().let_close()
    stopped.result(PATIENCE)


@pytest.mark.parametrize("face", ["call_tool", "awaited"])
def test_it_is_cancelled(make: Make, face: str) -> None:
    call = make(face)
    call.answer()
    call.scope.cancel()
    assert call.outcome() == ("cancelled", "unknown")


def test_it_is_cancelled_between_two_rounds(make: Make) -> None:
    call = make("call_tool")
    call.scope.cancel()
    assert call.outcome() == ("cancelled", "unknown")


def test_it_is_disconnected_right_before_the_next_round(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No misuse of the client, and no server that has not received the call."""
    transport = FakeTransport(answers=stateless_answers())
    transport.answers["tools/call"] = lambda _: {"resultType": "input_required", "requestState": "s"}
    client = MCPClient("fake", transport, protocol="stateless", clock=fake_clock)
    assert client.connect()

    def disconnect(_: object, exchange: RequestExchange) -> Step:
        client.disconnect()
        return exchange.input_arrived({})

    monkeypatch.setattr(ClientRequests, "_ask", disconnect)
    result = client.call_tool("echo")
    assert (result["error_type"], result["delivery"]) == ("cancelled", "unknown")


def test_a_scope_that_cancels_an_awaited_call_says_whether_it_was_written(fake_clock: FakeClock) -> None:
    """Not only between rounds: the call is under way."""
    transport = FakeTransport()
    transport.answers["tools/call"] = lambda _: None
    client = MCPClient("fake", transport, protocol="handshake", clock=fake_clock)
    assert client.connect()

    async def main() -> None:
        scope = CancelScope()
        asyncio.get_running_loop().run_in_executor(
            None, lambda: (transport.channel().wait_for("tools/call"), scope.cancel())
        )
        with scope.entered():
            result = await AsyncMCPClient.over(client).call_tool("echo")
        assert (result["error_type"], result["delivery"]) == ("cancelled", "unknown")

    asyncio.run(main())
    client.disconnect()
