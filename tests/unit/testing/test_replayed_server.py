"""Which answer a request gets, and when a server of a cassette ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import Event, HttpError, MCPClientManager, Restarted, ServerLog, ServerState, ToolsChanged
from gaia.testing.cassette import Cassette, Failure, RecordedEnding, RecordedExchange, RecordedServer, Start, Step
from gaia.testing.replaying import Replay
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

CRASH = RecordedEnding(exit_code=7)


def greeting(*tools: str, **capabilities: Any) -> list[RecordedExchange]:
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, **capabilities},
        "serverInfo": {"name": "recorded", "version": "1"},
    }
    return [
        RecordedExchange(request="initialize", result=result),
        RecordedExchange(request="tools/list", result={"tools": [{"name": name, "inputSchema": {}} for name in tools]}),
    ]


def call(tool: str, result: str | None = None, arguments: Json | None = None, **members: Any) -> RecordedExchange:
    """An exchange that is a call; without a `result` it has one of `members`."""
    if result is not None:
        members["result"] = {"content": [{"type": "text", "text": result}]}
    return RecordedExchange(request="tools/call", params={"name": tool, "arguments": arguments or {}}, **members)


def start(*exchanges: RecordedExchange, tools: tuple[str, ...] = ("a", "b", "c"), **members: Any) -> Start:
    return Start(exchanges=[*greeting(*tools), *exchanges], **members)


Play = Callable[..., MCPClientManager]


@pytest.fixture
def play() -> Iterator[Play]:
    """Make a manager of a server with these starts; ``manager.config`` is that of its `Replay`."""
    managers: list[MCPClientManager] = []

    def play(*starts: Start, **options: Any) -> MCPClientManager:
        cassette = Cassette(cassette=1, servers={"s": RecordedServer(starts=list(starts), settings={"timeout": 100})})
        replay = Replay(Path("cassette.json"), cassette, None)
        manager = MCPClientManager(replay, **options)
        managers.append(manager)
        manager.load_from_config()
        return manager

    yield play
    for manager in managers:
        manager.disconnect_all()


def text(result: Any) -> str:
    if "error" in result:
        return str(result["error"])
    return str(result["content"][0]["text"])


def mismatches(manager: MCPClientManager) -> list[str]:
    server = manager.config.get_servers()["s"]["inProcess"]
    found: list[str] = server.on_mismatch.__self__
    return found


class TestAnswers:
    def test_in_any_order(self, play: Play) -> None:
        manager = play(start(call("a", "1"), call("b", "2")))
        assert text(manager.call_tool("mcp_s_b")) == "2"
        assert text(manager.call_tool("mcp_s_a")) == "1"
        assert mismatches(manager) == []

    def test_equal_requests_in_their_order(self, play: Play) -> None:
        manager = play(start(call("a", "1"), call("a", "2")))
        assert [text(manager.call_tool("mcp_s_a")) for _ in range(2)] == ["1", "2"]

    def test_one_too_many(self, play: Play) -> None:
        manager = play(start(call("a", "1")))
        assert not manager.call_tool("mcp_s_a").is_error
        result = manager.call_tool("mcp_s_a")
        assert result.is_error
        assert "cassette.json, server 's': tool 'a' was asked for this once in the recording" in text(result)
        assert mismatches(manager) == [text(result)]

    def test_other_arguments(self, play: Play) -> None:
        manager = play(start(call("a", "1", {"x": 1})))
        result = manager.call_tool("mcp_s_a", {"x": 2})
        assert "@ x\n-1\n+2" in text(result)
        # It is still there for the request that it belongs to.
        assert text(manager.call_tool("mcp_s_a", {"x": 1})) == "1"

    def test_a_masked_argument_is_any_text(self, play: Play) -> None:
        manager = play(start(call("a", "masked", {"x": "***"}), call("a", "exact", {"x": "y"})))
        assert text(manager.call_tool("mcp_s_a", {"x": "y"})) == "exact"
        assert text(manager.call_tool("mcp_s_a", {"x": "secret"})) == "masked"

    def test_of_a_start_that_is_over(self, play: Play) -> None:
        """Another thread had called before the crash when it was recorded."""
        manager = play(start(call("a", "1"), call("b", crashed=True), end=CRASH), start(call("c", "3")))
        assert manager.call_tool("mcp_s_b")["error_type"] == "server_crashed"
        assert text(manager.call_tool("mcp_s_a")) == "1"
        assert text(manager.call_tool("mcp_s_c")) == "3"
        assert mismatches(manager) == []

    def test_errors(self, play: Play) -> None:
        failed = Failure.of(HttpError("the server answered with status 503", status=503))
        manager = play(start(call("a", error={"code": -32001, "message": "no"}), call("b", failed=failed)))
        assert manager.call_tool("mcp_s_a")["error_type"] == "jsonrpc"
        assert "503" in text(manager.call_tool("mcp_s_b"))
        assert mismatches(manager) == []

    def test_an_unanswered_call_stays_so(self, play: Play) -> None:
        manager = play(start(call("a", unanswered=True)))
        result = manager.call_tool("mcp_s_a", timeout=0.01)
        assert result["error_type"] == "timeout"
        assert mismatches(manager) == []

    def test_concurrent_calls(self, play: Play) -> None:
        arguments = [{"number": number} for number in range(200)]
        manager = play(start(*(call("a", str(one["number"]), one) for one in arguments)))
        with ThreadPoolExecutor(8) as threads:
            results = list(threads.map(lambda one: text(manager.call_tool("mcp_s_a", one)), arguments))
        assert results == [str(one["number"]) for one in arguments]

    def test_tools_are_listed_as_often_as_wanted(self, play: Play) -> None:
        manager = play(start())
        client = manager.get_client("s")
        assert client is not None
        for _ in range(3):
            assert [tool["name"] for tool in client.request("tools/list")["tools"]] == ["a", "b", "c"]
        assert mismatches(manager) == []


class TestProgressAndNotifications:
    def test_progress(self, play: Play) -> None:
        steps = [Step(notification="notifications/progress", params={"progress": n, "total": 3}) for n in (1, 2)]
        manager = play(start(call("a", "1", meanwhile=steps), call("a", "2", meanwhile=steps)))
        seen: list[Any] = []
        manager.call_tool("mcp_s_a", on_progress=lambda *progress: seen.append(progress))
        assert seen == [(1, 3, None), (2, 3, None)]
        # Without a token there is no progress.
        assert text(manager.call_tool("mcp_s_a")) == "2"

    def test_what_was_sent_before_the_first_call(self, play: Play) -> None:
        log = Step(notification="notifications/message", params={"level": "info", "data": "hello"})
        events: list[Event] = []
        manager = play(start(call("a", "1"), meanwhile=[log]))
        manager.subscribe(events.append)
        manager.call_tool("mcp_s_a")
        # It may have come before the subscription, and comes once.
        assert len([event for event in events if isinstance(event, ServerLog)]) <= 1

    def test_a_changed_list(self, play: Play) -> None:
        changed = Step(notification="notifications/tools/list_changed")
        listing = RecordedExchange(request="tools/list", result={"tools": [{"name": "new", "inputSchema": {}}]})
        manager = play(start(listing, call("a", "1", meanwhile=[changed]), call("new", "2")))
        happened = threading.Event()
        manager.subscribe(lambda event: happened.set() if isinstance(event, ToolsChanged) else None)
        manager.call_tool("mcp_s_a")
        assert happened.wait(PATIENCE)
        assert wait_until(lambda: [tool.name for tool in manager.list_tools()] == ["new"])
        assert text(manager.call_tool("mcp_s_new")) == "2"


ASK = Step(
    request="elicitation/create",
    params={"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    answer={"result": {"action": "accept", "content": {"name": "Ada"}}},
)


class TestQuestions:
    def test_the_application_answers_the_same(self, play: Play) -> None:
        manager = play(
            start(call("a", "hello Ada", meanwhile=[ASK])),
            on_elicitation=lambda _: {"action": "accept", "content": {"name": "Ada"}},
        )
        assert text(manager.call_tool("mcp_s_a")) == "hello Ada"
        assert mismatches(manager) == []

    def test_the_application_answers_otherwise(self, play: Play) -> None:
        manager = play(
            start(call("a", "hello Ada", meanwhile=[ASK])),
            on_elicitation=lambda _: {"action": "accept", "content": {"name": "Eve"}},
        )
        result = manager.call_tool("mcp_s_a")
        assert "elicitation/create of the server was answered otherwise" in text(result)
        assert "Eve" in text(result)
        assert len(mismatches(manager)) == 1

    def test_folders_of_the_machine_are_not_compared(self, play: Play) -> None:
        ask = Step(request="roots/list")
        manager = play(start(call("a", "1", meanwhile=[ask], afterwards=[ask])), roots=["file:///anywhere"])
        assert text(manager.call_tool("mcp_s_a")) == "1"
        assert mismatches(manager) == []


class TestEndings:
    def test_a_crash_by_a_call(self, play: Play) -> None:
        manager = play(start(call("a", crashed=True), call("b", "1"), end=CRASH), start(call("a", "2")))
        assert text(manager.call_tool("mcp_s_b")) == "1"
        result = manager.call_tool("mcp_s_a")
        assert result["error_type"] == "server_crashed"
        assert result["delivery"] == "unknown"
        assert "exited with code 7" in text(result)
        assert text(manager.call_tool("mcp_s_a")) == "2"
        assert manager.status()[0].restarts == 1

    def test_all_calls_that_the_crash_left_have_come(self, play: Play) -> None:
        manager = play(start(call("a", crashed=True), call("b", crashed=True), end=CRASH), start())
        first = manager.submit_tool("mcp_s_a")
        assert manager.status()[0].state is ServerState.READY
        second = manager.submit_tool("mcp_s_b")
        for future in (first, second):
            assert "exited with code 7" in str(future.exception(PATIENCE))

    def test_a_crash_between_calls(self, play: Play) -> None:
        manager = play(start(call("a", "1"), end=CRASH), start(call("b", "2")))
        assert text(manager.call_tool("mcp_s_a")) == "1"
        assert text(manager.call_tool("mcp_s_b")) == "2"
        assert wait_until(lambda: manager.status()[0].restarts == 1)

    def test_calls_that_come_at_the_same_time_as_the_end(self, play: Play) -> None:
        later = [call("b", str(number)) for number in range(20)]
        manager = play(start(call("a", "1"), end=CRASH), start(*later))
        first = manager.submit_tool("mcp_s_a")
        futures = [manager.submit_tool("mcp_s_b") for _ in later]
        assert text(first.result(PATIENCE)) == "1"
        # They were not written to the server that ended, so none of them failed.
        assert sorted(int(text(future.result(PATIENCE))) for future in futures) == list(range(20))
        assert mismatches(manager) == []

    def test_a_crash_before_all_calls(self, play: Play) -> None:
        manager = play(start(end=CRASH), start(call("a", "1")))
        assert text(manager.call_tool("mcp_s_a")) == "1"
        assert manager.status()[0].generation == 2

    def test_a_safe_call_is_repeated(self, play: Play) -> None:
        tools = [{"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]
        greet = [greeting()[0], RecordedExchange(request="tools/list", result={"tools": tools})]
        manager = play(
            Start(exchanges=[*greet, call("a", crashed=True)], end=CRASH), Start(exchanges=[*greet, call("a", "1")])
        )
        assert text(manager.call_tool("mcp_s_a")) == "1"

    def test_a_start_that_failed(self, play: Play) -> None:
        manager = play(Start(failed="the program has gone"))
        assert "the program has gone" in str(manager.status()[0].last_error)

    def test_a_start_that_was_not_recorded(self, play: Play) -> None:
        manager = play(start())
        assert not manager.restart("s")
        assert "1 start was recorded, and this is number 2" in str(manager.status()[0].last_error)

    def test_no_restart_is_told_of_without_a_crash(self, play: Play) -> None:
        events: list[Event] = []
        manager = play(start(call("a", "1")))
        manager.subscribe(events.append)
        manager.call_tool("mcp_s_a")
        manager.disconnect_all()
        assert not any(isinstance(event, Restarted) for event in events)
