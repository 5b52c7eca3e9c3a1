import itertools
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import msgspec
import orjson
import pytest

from gaia.mcp.cluster.cluster_loop import Alarm, ClusterLoop
from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.cluster.link import HostLost, OnAnswer
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.wire import AskedCall, Reply, WireError, encode
from gaia.mcp.errors import (
    CallCancelled,
    MCPError,
    NotConnected,
    Overloaded,
    ServerCrashed,
    ServerUnavailable,
    ToolDenied,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.supervision.events import ServerState
from gaia.runtime.clock import SystemClock
from tests.interruption import raise_within


class Link:
    """Keeps what it is given until the test answers."""

    actor_id = "a"
    is_left = False

    def __init__(self) -> None:
        self.calls: list[tuple[AskedCall, OnAnswer]] = []
        self.told: list[tuple[object, ...]] = []

    def call(self, asked: bytes, on_answer: OnAnswer, call: Outgoing) -> None:
        self.calls.append((msgspec.msgpack.decode(asked, type=AskedCall), on_answer))

    def tell(self, *message: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self.told.append(message)

    def answer(self, nth: int, reply: Reply) -> None:
        self.calls[nth][1](encode(reply), None)

    def lose(self, nth: int) -> None:
        self.calls[nth][1](None, HostLost("the node died"))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Loop(ClusterLoop):
    """Runs what is posted when the test says so."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.tasks: list[Callable[[], object]] = []
        self.alarms: list[Callable[[], object]] = []

    def post(self, task: Callable[[], object]) -> None:
        self.tasks.append(task)

    def alarm(self, seconds: float, task: Callable[[], object]) -> Alarm:
        self.alarms.append(task)
        return Alarm(self, 0.0, task)

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Server:
    """A placed server's calls, with a gate that is open."""

    def __init__(self, max_flights: int = 8, max_pending: int = 8) -> None:
        self.link, self.loop = Link(), Loop()
        self.denied: dict[str, MCPError] = {}
        self.safe = {"echo"}
        self.lost: list[str] = []
        self.calls = PlacedCalls(
            "it",
            max_pending,
            max_flights,
            self.loop,
            Mock(**{"refusal_of.side_effect": self.denied.get, "safe_to_repeat.side_effect": self.safe.__contains__}),
            lambda incarnation, _: self.lost.append(incarnation),
        )
        self.calls.move_to(ServerState.READY, None)
        self.open()

    def open(self, incarnation: str = "one") -> None:
        self.calls.open(Gate(self.link, incarnation, HostClock()))

    def submit(self, *, repeatable: bool = False, tool: str = "echo", on_progress: Any = None) -> Call:
        call = Call(
            self.calls.next_id(),
            "tools/call",
            {"name": tool},
            0.0,
            30.0,
            repeatable=repeatable,
            tool=tool,
            on_progress=on_progress,
        )
        self.calls.submit(call)
        return call


OK = Reply(result=orjson.dumps({"content": []}))


class TestInterruption:
    def test_a_caller_that_is_interrupted_takes_no_place(self) -> None:
        """An application that goes on after Ctrl-C would lose one place after the other."""
        for place in itertools.count():
            server = Server(max_flights=1)
            call = Call(server.calls.next_id(), "tools/call", {"name": "echo"}, 0.0, math.inf, tool="echo")

            def perform(server: Server = server, call: Call = call) -> None:
                server.calls.submit(call)
                server.calls.cancel(call, CallCancelled("not wanted"))

            where = raise_within(perform, place, ("cluster/placed_calls.py",))
            # As the end of `Call.perform`; what was sent is answered, too.
            server.calls.cancel(call, CallCancelled("the caller was interrupted"))
            for nth in range(len(server.link.calls)):
                server.link.answer(nth, OK)
            server.loop.run()
            next_one = server.submit()
            assert next_one.written, where
            if not where:
                break


class TestFlights:
    def test_an_answer_does_not_wait_for_progress_of_a_host_that_is_lost(self) -> None:
        server = Server()
        call = server.submit(on_progress=lambda _: None)
        server.link.answer(0, msgspec.structs.replace(OK, progress=1))
        assert not call.ended
        server.calls.deliver_answers("another")
        assert not call.ended
        server.calls.deliver_answers("one")
        assert call.result == {"content": []}

    def test_a_call_is_sent_and_answered(self) -> None:
        server = Server()
        call = server.submit()
        asked, _ = server.link.calls[0]
        assert (asked.incarnation, asked.number, asked.tool) == ("one", call.id, "echo")
        assert server.calls.in_flight == 1
        server.link.answer(0, OK)
        assert call.result == {"content": []}
        assert server.calls.in_flight == 0

    def test_an_error_of_the_host_is_that_of_the_call(self) -> None:
        server = Server()
        call = server.submit()
        server.link.answer(0, Reply(error=WireError.of(ServerUnavailable("it is down"))))
        assert isinstance(call.error, ServerUnavailable)
        assert call.error.delivery == "not_sent"

    def test_more_than_the_host_takes_wait(self) -> None:
        server = Server(max_flights=1)
        server.submit()
        second = server.submit()
        assert (server.calls.in_flight, len(server.calls)) == (1, 1)
        server.link.answer(0, OK)
        server.loop.run()
        server.link.answer(1, OK)
        assert second.ended

    def test_a_call_that_waits_until_its_deadline_is_told_of_the_server(self) -> None:
        server = Server(max_flights=1)
        server.submit()
        second = server.submit()
        assert server.calls.expire(second)
        assert str(second.error) == "server 'it' was busy with other calls for 30 s"
        third = server.submit()
        server.calls.move_to(ServerState.RESTARTING, None)
        assert server.calls.expire(third)
        assert str(third.error) == "server 'it' was not ready within 30 s: it is restarting"

    def test_an_answer_waits_for_the_progress_before_it(self) -> None:
        server, reports = Server(), list[object]()
        call = server.submit(on_progress=reports.append)
        server.link.answer(0, Reply(result=b"{}", progress=2))
        server.calls.progressed(call.id, {"progress": 1}, 0.0)
        assert not call.ended
        server.calls.progressed(call.id, {"progress": 2}, 0.0)
        assert call.ended
        assert reports == [{"progress": 1}, {"progress": 2}]

    @pytest.mark.parametrize("expired", [True, False])
    def test_the_host_is_told_of_a_call_that_is_given_up(self, expired: bool) -> None:
        server = Server()
        call = server.submit()
        if expired:
            assert server.calls.expire(call)
        else:
            assert server.calls.cancel(call, CallCancelled("not wanted"))
        assert call.error is not None
        assert call.error.delivery == "unknown"
        server.loop.run()
        assert server.link.told == [("cancel", "one", call.id, call.error.message, expired)]
        server.link.answer(0, OK)
        assert call.result == {}


class TestLoss:
    def test_a_call_that_was_sent_may_have_been_acted_on(self) -> None:
        server = Server()
        call = server.submit()
        server.link.lose(0)
        assert isinstance(call.error, ServerCrashed)
        assert call.error.delivery == "unknown"
        assert server.lost == ["one"]

    def test_no_call_is_sent_to_what_was_lost(self) -> None:
        server = Server()
        server.submit()
        server.link.lose(0)
        waiting = server.submit()
        server.loop.run()
        assert len(server.link.calls) == 1
        server.open("two")
        assert server.link.calls[1][0].incarnation == "two"
        server.link.answer(1, OK)
        assert waiting.error is None

    def test_a_safe_call_is_repeated_once(self) -> None:
        server = Server()
        call = server.submit(repeatable=True)
        server.link.lose(0)
        assert not call.ended
        server.open("two")
        asked, _ = server.link.calls[1]
        assert (asked.number, asked.repeatable) == (call.id, False)
        server.link.lose(1)
        assert isinstance(call.error, ServerCrashed)

    def test_a_late_answer_is_dropped(self) -> None:
        server = Server()
        call = server.submit(repeatable=True)
        server.link.lose(0)
        server.open("two")
        server.link.answer(0, Reply(result=orjson.dumps({"from": "the old one"})))
        assert not call.ended
        server.link.answer(1, OK)
        assert call.result == {"content": []}

    def test_what_the_host_did_not_take_was_not_sent_and_waits_for_a_greeting(self) -> None:
        server = Server()
        call = server.submit()
        server.link.answer(0, Reply(is_late=True))
        server.loop.run()
        assert not call.ended
        assert (call.delivery, len(server.link.calls), server.lost) == ("not_sent", 1, ["one"])
        server.open()
        server.loop.run()
        assert len(server.link.calls) == 2

    def test_a_call_that_comes_back_is_checked_again(self) -> None:
        server = Server()
        call = server.submit()
        server.denied["echo"] = ToolDenied("another definition")
        server.link.answer(0, Reply())
        server.loop.run()
        assert not call.ended
        server.loop.alarms[0]()
        assert isinstance(call.error, ToolDenied)
        assert call.error.delivery == "not_sent"

    def test_a_tool_that_is_not_safe_any_more_is_not_repeated(self) -> None:
        server = Server()
        call = server.submit(repeatable=True)
        server.link.lose(0)
        server.safe.clear()
        server.open("two")
        server.loop.run()
        assert isinstance(call.error, ServerCrashed)
        assert (call.error.delivery, len(server.link.calls)) == ("unknown", 1)

    def test_a_call_of_a_handle_that_comes_back_is_sent_again(self) -> None:
        server = Server()
        call = Call(server.calls.next_id(), "tools/call", {"name": "echo"}, 0.0, 30.0, tool="echo")
        server.calls.submit_bound(call, "one", 0)
        server.calls.listed("one", 3)
        server.link.answer(0, Reply())
        assert [asked.listing for asked, _ in server.link.calls] == [0, 3]
        server.link.answer(1, OK)
        assert call.result == {"content": []}


class TestRefusals:
    def test_a_server_that_failed_refuses_what_waits_and_what_comes(self) -> None:
        server = Server(max_flights=1)
        server.submit()
        waiting = server.submit()
        server.calls.move_to(ServerState.FAILED, "no node has a browser")
        assert isinstance(waiting.error, ServerUnavailable)
        refused = server.submit()
        assert isinstance(refused.error, ServerUnavailable)
        assert "no node has a browser" in refused.error.message

    def test_the_backlog_is_bounded(self) -> None:
        server = Server(max_pending=1)
        server.calls.close()
        server.submit()
        assert isinstance(server.submit().error, Overloaded)

    def test_the_end_cancels_all_calls(self) -> None:
        server = Server(max_flights=1)
        sent, waiting = server.submit(), server.submit()
        server.calls.move_to(ServerState.CLOSED, "it was disconnected")
        for call, delivery in ((sent, "unknown"), (waiting, "not_sent")):
            assert isinstance(call.error, CallCancelled)
            assert call.error.delivery == delivery
        assert isinstance(server.submit().error, NotConnected)
