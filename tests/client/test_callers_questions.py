"""Functions that answer run for one call, in its context and on its loop, while its clock stands still."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaia.mcp import CurrentCall, MCPClient, current_call
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.protocol.messages import Refusal
from gaia.mcp.rpc.call_origin import CallOrigin
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.runtime.loop_work import LoopWork
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel, FakeTransport, stateless_answers
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Make = Callable[..., "Asking"]

DONE = {"content": [{"type": "text", "text": "done"}]}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
QUESTION = {"method": "elicitation/create", "params": FORM}

user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


class Asking:
    """A client of a server that asks before it answers; the test is the server."""

    def __init__(self, era: str, clock: FakeClock | None = None, **features: Any) -> None:
        self.era = era
        self.transport = FakeTransport(answers=stateless_answers() if era == "stateless" else None)
        self.client = MCPClient(
            "fake", self.transport, protocol=era, clock=clock, health_interval=1_000_000.0, **features
        )
        assert self.client.connect(), self.client.last_error
        self.threads = ThreadPoolExecutor(64, "test-caller")

    @property
    def channel(self) -> FakeChannel:
        return self.transport.channel(self.transport.starts)

    def ask(self, nth: int = 1) -> None:
        """Ask before the call of this number is answered."""
        call = self.channel.wait_for("tools/call", nth)
        if self.era == "stateless":
            self.channel.answer(call, {"resultType": "input_required", "inputRequests": {"who": QUESTION}})
        else:
            self.channel.ask("elicitation/create", FORM, f"q-{nth}")

    def answer_after(self, nth: int = 1, calls: int = 1) -> str:
        """The name that the person gave; then the call is answered."""
        if self.era == "stateless":
            call = self.channel.wait_for("tools/call", calls + nth)
            given = call["params"]["inputResponses"]["who"]
        else:
            call = self.channel.wait_for("tools/call", nth)
            given = self.channel.wait_for_response(f"q-{nth}")["result"]
        self.channel.answer(call, DONE)
        return str(given["content"]["name"])

    def close(self) -> None:
        self.client.disconnect()
        self.threads.shutdown()


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Asking] = []

    def make(era: str, **features: Any) -> Asking:
        made.append(Asking(era, **features))
        return made[-1]

    yield make
    for one in made:
        one.close()


eras = pytest.mark.parametrize("era", ["handshake", "stateless"])


class Seen:
    """What a function that answers finds around it."""

    def __init__(self) -> None:
        self.call: CurrentCall | None = None
        self.user = ""
        self.thread = ""
        self.loop: object = None

    def note(self) -> None:
        self.call, self.user, self.thread = current_call(), user.get(), threading.current_thread().name
        self.loop = asyncio._get_running_loop()

    def answer(self, request: Any) -> Any:
        self.note()
        return request.accept({"name": user.get()})

    async def answer_async(self, request: Any) -> Any:
        await asyncio.sleep(0)
        return self.answer(request)


class TestIdentity:
    @eras
    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_function_knows_the_call_and_its_context(self, make: Make, era: str, is_async: bool) -> None:
        seen, ticket = Seen(), object()
        asking = make(era, on_elicitation=seen.answer_async if is_async else seen.answer)

        def call() -> Json:
            user.set("Ann")
            return asking.client.call_tool("echo", {"a": 1}, context=ticket)

        result = asking.threads.submit(call)
        asking.ask()
        assert asking.answer_after() == "Ann"
        assert result.result(PATIENCE)["content"] == DONE["content"]
        assert seen.call is not None
        assert (seen.call.server, seen.call.tool, seen.call.arguments) == ("fake", "echo", {"a": 1})
        assert seen.call.context is ticket
        assert seen.call.key is None
        assert (seen.thread == "mcp-coroutines") is is_async
        assert current_call() is None

    @eras
    def test_an_awaited_call_is_asked_on_its_own_loop(self, make: Make, era: str) -> None:
        seen = Seen()
        asking = make(era, on_elicitation=seen.answer_async)

        async def main() -> None:
            user.set("Bob")
            client = AsyncMCPClient.over(asking.client)
            call = asyncio.create_task(client.call_tool("echo", context="his"))
            await asyncio.to_thread(asking.ask)
            assert await asyncio.to_thread(asking.answer_after) == "Bob"
            assert (await call)["content"] == DONE["content"]
            assert seen.loop is asyncio.get_running_loop()
            assert seen.call is not None
            assert seen.call.context == "his"

        asyncio.run(main())
        assert not [thread for thread in threading.enumerate() if thread.name == "mcp-coroutines"]

    def test_a_question_that_may_belong_to_several_calls_belongs_to_none(self, make: Make) -> None:
        seen = Seen()
        asking = make("handshake", on_elicitation=seen.answer_async)

        async def main() -> None:
            client = AsyncMCPClient.over(asking.client)
            calls = [asyncio.create_task(client.call_tool("echo", context=n)) for n in range(2)]
            await asyncio.to_thread(asking.channel.wait_for, "tools/call", 2)
            await asyncio.to_thread(asking.ask, 2)
            assert await asyncio.to_thread(asking.answer_after, 2) == "nobody"
            asking.channel.answer(asking.channel.wait_for("tools/call", 1), DONE)
            await asyncio.gather(*calls)
            assert seen.loop is asyncio.get_running_loop()

        asyncio.run(main())
        assert seen.call is None

    def test_roots_may_be_async(self, make: Make) -> None:
        async def roots() -> list[str]:
            return ["file:///work"]

        asking = make("handshake", roots=roots)
        asking.channel.ask("roots/list")
        assert asking.channel.wait_for_response()["result"] == {"roots": [{"uri": "file:///work"}]}

    def test_a_withdrawn_question_cancels_its_task(self, make: Make) -> None:
        asked, cancelled = threading.Event(), threading.Event()

        async def think(_: object) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        asking = make("handshake", on_elicitation=think)
        asking.channel.ask("elicitation/create", FORM)
        assert asked.wait(PATIENCE)
        asking.channel.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q-1"}})
        assert cancelled.wait(PATIENCE)

    def test_a_loop_that_is_closed_answers_nothing(self, fake_clock: FakeClock) -> None:
        loop = asyncio.new_event_loop()
        origin = CallOrigin(None, None, LoopWork(loop))
        loop.close()
        pool = CallbackPool("test", "server-requests")
        requests = ServerRequests("fake", ClientFeatures(on_elicitation=Seen().answer_async), pool, fake_clock, 600.0)
        refused: queue.SimpleQueue[Refusal | None] = queue.SimpleQueue()
        requests.ask("elicitation/create", FORM, lambda _, refusal: refused.put(refusal), origin)
        refusal = refused.get(timeout=PATIENCE)
        assert refusal is not None
        assert refusal.message == "the client could not answer"
        pool.close()


class TestManyPeople:
    @eras
    @pytest.mark.parametrize("is_async", [False, True])
    def test_forty_people_are_asked_at_once(self, make: Make, era: str, is_async: bool) -> None:
        asked, everybody = threading.Semaphore(0), threading.Event()

        def ask(request: Any) -> Any:
            asked.release()
            assert everybody.wait(PATIENCE)
            return request.accept({"name": "Ann"})

        async def ask_async(request: Any) -> Any:
            asked.release()
            while not everybody.is_set():
                await asyncio.sleep(0.01)
            return request.accept({"name": "Ann"})

        asking = make(era, on_elicitation=ask_async if is_async else ask)
        calls = [asking.client.submit_tool("echo", {"n": n}) for n in range(40)]
        for nth in range(1, 41):
            asking.ask(nth)
        for _ in range(40):
            assert asked.acquire(timeout=PATIENCE)
        threads = [thread for thread in threading.enumerate() if "server-requests" in thread.name]
        assert len(threads) == (0 if is_async else 40)
        everybody.set()
        for nth in range(1, 41):
            assert asking.answer_after(nth, 40) == "Ann"
        assert all(call.result(PATIENCE)["content"] == DONE["content"] for call in calls)


class TestTheClockOfTheCall:
    @eras
    @pytest.mark.parametrize("submitted", [False, True])
    def test_stands_still_while_a_person_thinks(
        self, make: Make, fake_clock: FakeClock, era: str, submitted: bool
    ) -> None:
        asked, may_answer = threading.Event(), threading.Event()

        def think(request: Any) -> Any:
            asked.set()
            assert may_answer.wait(PATIENCE)
            return request.accept({"name": "Ann"})

        asking = make(era, clock=fake_clock, on_elicitation=think)
        call = self._call(asking, submitted, timeout=1.0)
        asking.ask()
        assert asked.wait(PATIENCE)
        fake_clock.advance(2.5)
        may_answer.set()
        assert asking.answer_after() == "Ann"
        assert call.result(PATIENCE)["content"] == DONE["content"]

    @pytest.mark.parametrize("submitted", [False, True])
    def test_runs_on_after_the_answer(self, make: Make, fake_clock: FakeClock, submitted: bool) -> None:
        asking = make("handshake", clock=fake_clock, on_elicitation=lambda request: request.decline())
        call = self._call(asking, submitted, timeout=10.0)
        began = fake_clock.monotonic()
        asking.channel.wait_for("tools/call")
        fake_clock.advance(4.0)
        asking.ask()
        asking.channel.wait_for_response("q-1")
        fake_clock.wait_for_waiter(began + 10.0)
        fake_clock.advance(5.9)
        assert not call.done()
        fake_clock.advance(0.2)
        assert self._error_type(call) == "timeout"

    @pytest.mark.parametrize("submitted", [False, True])
    def test_runs_on_when_the_person_never_answers(self, make: Make, fake_clock: FakeClock, submitted: bool) -> None:
        asked, forgotten = threading.Event(), threading.Event()

        def think(request: Any) -> Any:
            asked.set()
            assert forgotten.wait(PATIENCE)

        asking = make("handshake", clock=fake_clock, on_elicitation=think, question_timeout=60.0)
        call = self._call(asking, submitted, timeout=1.0)
        asking.ask()
        assert asked.wait(PATIENCE)
        due = fake_clock.monotonic() + 60.0
        fake_clock.wait_for_waiter(due)
        fake_clock.advance(60.0)
        assert asking.channel.wait_for_response("q-1")["error"]["message"] == "not answered within 60 s"
        fake_clock.wait_for_waiter(due + 1.0)
        fake_clock.advance(1.0)
        assert self._error_type(call) == "timeout"
        forgotten.set()

    def test_stands_still_for_every_call_that_may_be_meant(self, make: Make, fake_clock: FakeClock) -> None:
        asked, may_answer = threading.Event(), threading.Event()

        def think(request: Any) -> Any:
            asked.set()
            assert may_answer.wait(PATIENCE)
            return request.accept({"name": "Ann"})

        asking = make("handshake", clock=fake_clock, on_elicitation=think)
        calls = [self._call(asking, submitted, timeout=1.0) for submitted in (False, True)]
        asking.channel.wait_for("tools/call", 2)
        asking.ask(2)
        assert asked.wait(PATIENCE)
        fake_clock.advance(2.5)
        may_answer.set()
        asking.answer_after(2)
        asking.channel.answer(asking.channel.wait_for("tools/call", 1), DONE)
        assert [call.result(PATIENCE)["content"] for call in calls] == [DONE["content"]] * 2

    @staticmethod
    def _call(asking: Asking, submitted: bool, **options: Any) -> Any:
        if submitted:
            return asking.client.submit_tool("echo", **options)
        return asking.threads.submit(asking.client.call_tool, "echo", **options)

    @staticmethod
    def _error_type(call: Any) -> str:
        error = call.exception(PATIENCE)
        return str(call.result()["error_type"] if error is None else error.error_type)


def test_the_engines_loop_ends_with_its_last_client(make: Make) -> None:
    asking = make("handshake", on_elicitation=Seen().answer_async)
    asking.channel.ask("elicitation/create", FORM)
    asking.channel.wait_for_response()
    assert [thread for thread in threading.enumerate() if thread.name == "mcp-coroutines"]
    asking.client.disconnect()
    assert wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "mcp-coroutines"])
