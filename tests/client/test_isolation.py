"""User code that blocks, and servers that flood: what they cost, and that they cost no other server anything."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import json
import logging
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import CallTimeout, ConfigError, InvalidResponse
from gaia.mcp.protocol.server_questions import ElicitationRequest
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.supervision.events import Event, EventsDropped, ServerLog, ServerState
from gaia.mcp.supervision.policy import RestartPolicy, RestartTracker, Retry
from gaia.mcp.transports.fork_server import fork_server
from gaia.runtime.log import get_logger
from tests.servers.answers import received, text
from tests.servers.processes import wait_for_end
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Server = Callable[..., Json]

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
HANGS = {"tool": "pid", "hang": True}


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Something for user code to wait for; set at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def manage(held: threading.Event) -> Iterator[Callable[..., MCPClientManager]]:
    """A manager of these connected servers, ``{name: configuration}``; user code is let go before it is closed."""
    with ExitStack() as stack:

        def make(servers: dict[str, Json], **settings: Any) -> MCPClientManager:
            manager = stack.enter_context(MCPClientManager(servers, **settings))
            assert set(manager.list_servers()) == set(servers)
            return manager

        yield make
        held.set()


Manage = Callable[..., MCPClientManager]


def client_of(manager: MCPClientManager, name: str) -> MCPClient:
    client = manager.get_client(name)
    assert client is not None
    return client


def echo(client: MCPClient, words: str = "hi", **options: Any) -> CallFuture:
    return client.submit_tool("echo", {"text": words}, **options)


class TestFutures:
    def test_they_are_done_whatever_callbacks_do(
        self, manage: Manage, fault_server: Server, held: threading.Event
    ) -> None:
        manager = manage({"a": fault_server(), "b": fault_server(faults=[HANGS])})
        a, b = client_of(manager, "a"), client_of(manager, "b")
        # More than there are threads for the callbacks of one server.
        for _ in range(40):
            echo(a).add_done_callback(lambda _: held.wait(PATIENCE))
        assert text(echo(a).result(PATIENCE)) == "hi"
        assert text(echo(b).result(PATIENCE)) == "hi"
        assert isinstance(b.submit_tool("pid", timeout=0.05).exception(PATIENCE), CallTimeout)
        called = threading.Event()
        echo(b).add_done_callback(lambda _: called.set())
        assert called.wait(PATIENCE), "the callbacks of one server hold up those of another"

    def test_callbacks_may_wait_for_further_calls(self, manage: Manage, fault_server: Server) -> None:
        manager = manage({"a": fault_server()})
        a, answers = client_of(manager, "a"), list[str]()

        def call_again(future: Any) -> None:
            answers.append(text(echo(a, "nested").result(PATIENCE)))
            answers.append(text(a.call_tool("echo", {"text": "nested"})))

        for _ in range(50):
            echo(a).add_done_callback(call_again)
        assert wait_until(lambda: len(answers) == 100)
        assert set(answers) == {"nested"}

    def test_the_ways_to_wait_for_several_work(self, manage: Manage, fault_server: Server) -> None:
        a = client_of(manage({"a": fault_server()}), "a")
        done, pending = concurrent.futures.wait([echo(a) for _ in range(5)], PATIENCE)
        assert (len(done), len(pending)) == (5, 0)
        assert len(list(concurrent.futures.as_completed([echo(a) for _ in range(5)], PATIENCE))) == 5

        async def main() -> list[str]:
            return [text(await asyncio.wrap_future(echo(a))) for _ in range(5)]

        assert asyncio.run(main()) == ["hi"] * 5

    def test_a_callback_that_is_added_afterwards_is_called_at_once(self, manage: Manage, fault_server: Server) -> None:
        future = echo(client_of(manage({"a": fault_server()}), "a"))
        future.result(PATIENCE)
        threads: list[threading.Thread] = []
        future.add_done_callback(lambda _: threads.append(threading.current_thread()))
        assert threads == [threading.current_thread()]


def log_of(size: int) -> Json:
    """Each call of `echo` is accompanied by a log message of so many characters."""
    message = {"method": "notifications/message", "params": {"level": "info", "data": "x" * size}}
    return {"tool": "echo", "notifications": [message]}


class TestListeners:
    def test_a_slow_one_costs_only_itself(self, manage: Manage, fault_server: Server, held: threading.Event) -> None:
        manager = manage({"a": fault_server(faults=[log_of(10)]), "b": fault_server(faults=[log_of(10)])})
        a, b = client_of(manager, "a"), client_of(manager, "b")
        for _ in range(40):
            a.subscribe(lambda _: held.wait(PATIENCE))
        heard = [threading.Event(), threading.Event()]
        a.subscribe(lambda _: heard[0].set())
        b.subscribe(lambda _: heard[1].set())
        a.call_tool("echo", {"text": "hi"})
        b.call_tool("echo", {"text": "hi"})
        assert all(event.wait(PATIENCE) for event in heard)
        assert text(echo(a).result(PATIENCE)) == "hi"

    def test_the_flood_of_one_server_evicts_no_event_of_another_and_is_bounded_in_bytes(
        self, manage: Manage, fault_server: Server, held: threading.Event
    ) -> None:
        manager = manage(
            {"quiet": fault_server(faults=[log_of(10)]), "flooding": fault_server(faults=[log_of(60_000)])}
        )
        told: list[Event] = []
        entered, flooded = threading.Event(), threading.Semaphore(0)

        def listener(event: Event) -> None:
            if not entered.is_set():
                entered.set()
                held.wait(PATIENCE)
            told.append(event)

        quiet, flooding = client_of(manager, "quiet"), client_of(manager, "flooding")
        flooding.subscribe(lambda event: flooded.release() if isinstance(event, ServerLog) else None)
        manager.subscribe(listener)
        quiet.call_tool("echo", {"text": "hi"})
        assert entered.wait(PATIENCE)
        quiet.call_tool("echo", {"text": "hi"})
        for _ in range(100):
            flooding.call_tool("echo", {"text": "hi"})
            assert flooded.acquire(timeout=PATIENCE)
        held.set()
        assert wait_until(lambda: any(isinstance(event, EventsDropped) for event in told))
        assert [event.server for event in told if isinstance(event, ServerLog)].count("quiet") == 2
        (dropped,) = {event.server for event in told if isinstance(event, EventsDropped)}
        assert dropped == "flooding"


class TestServerRequests:
    def test_forms_of_one_server_hold_up_nothing_else(
        self, manage: Manage, fault_server: Server, held: threading.Event
    ) -> None:
        form = {"method": "elicitation/create", "params": FORM}
        asking = {"tool": "echo", "server_requests": [form] * 10}
        open_forms = threading.Semaphore(0)

        def on_elicitation(request: ElicitationRequest) -> Json:
            if request.server == "a":
                open_forms.release()
                held.wait(PATIENCE)
            return {"action": "decline"}

        manager = manage(
            {
                "a": fault_server(faults=[asking]),
                "b": fault_server(faults=[{"tool": "echo", "server_requests": [form, {"method": "roots/list"}]}]),
            },
            on_elicitation=on_elicitation,
            roots=lambda: ["file:///folder"],
        )
        a, b = client_of(manager, "a"), client_of(manager, "b")
        a.call_tool("echo", {"text": "hi"})
        for _ in range(4):
            assert open_forms.acquire(timeout=PATIENCE)
        b.call_tool("echo", {"text": "hi"})
        form_answer, roots_answer = json.loads(text(b.call_tool("client_answers", timeout=PATIENCE)))
        assert form_answer["result"] == {"action": "decline"}
        assert roots_answer["result"] == {"roots": [{"uri": "file:///folder"}]}

    @pytest.mark.parametrize("roots", [["file:///folder"], lambda: ["file:///folder"]], ids=["list", "function"])
    def test_forms_hold_up_no_other_request_of_the_same_server(
        self, manage: Manage, fault_server: Server, held: threading.Event, roots: Any
    ) -> None:
        forms = [{"method": "elicitation/create", "params": FORM}] * 10
        asking = {"tool": "echo", "server_requests": [*forms, {"method": "roots/list"}, {"method": "ping"}]}
        settings = {"on_elicitation": lambda _: held.wait(PATIENCE) and None, "roots": roots}
        a = client_of(manage({"a": fault_server(faults=[asking])}, **settings), "a")
        a.call_tool("echo", {"text": "hi"})
        results: Callable[[], list[Json]] = lambda: [message.get("result") for message in received(a)]  # noqa: E731
        assert wait_until(lambda: {"roots": [{"uri": "file:///folder"}]} in results())
        assert {} in results(), "the ping is not answered"


@contextmanager
def no_threads() -> Iterator[None]:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


class TestThreads:
    def test_a_client_says_that_it_has_none_and_connects_when_there_are_some(self, fault_server: Server) -> None:
        client = MCPClient.from_config("fault", fault_server())
        with no_threads():
            assert not client.connect()
        assert client.last_error == "no thread for the server: can't start new thread"
        assert client.state is ServerState.FAILED
        assert client.call_tool("echo", {"text": "hi"})["delivery"] == "not_sent"
        client.disconnect()
        assert client.state is ServerState.CLOSED
        assert client.connect()
        client.disconnect()

    def test_a_manager_loads_what_it_can_and_shows_the_rest(self, fault_server: Server, tmp_path: Path) -> None:
        config = MCPConfig(tmp_path / "servers.json", create=True)
        for name in ("one", "two"):
            config.add_server(name, fault_server())
        with MCPClientManager(config) as manager:
            with no_threads():
                manager.load_from_config()
            assert {status.name: status.state for status in manager.status()} == {
                "one": ServerState.FAILED,
                "two": ServerState.FAILED,
            }
            manager.load_from_config()
            assert sorted(manager.list_servers()) == ["one", "two"]

    def test_a_future_is_done_without_a_thread_for_its_callbacks_which_are_called_later(
        self, fault_server: Server
    ) -> None:
        called: list[str] = []
        with MCPClient.from_config("fault", fault_server()) as client:
            with no_threads():
                future = client.submit_tool("echo", {"text": "hi"})
                future.add_done_callback(lambda _: called.append("without"))
                assert text(future.result(PATIENCE)) == "hi"

            def called_after_another_one() -> bool:
                # A callback of a future that is done already runs here, and needs no thread.
                client.submit_tool("echo", {"text": "hi"}).add_done_callback(lambda _: called.append("with"))
                return "without" in called

            assert wait_until(called_after_another_one)
            with no_threads():
                client.submit_tool("echo", {"text": "hi"}).add_done_callback(lambda _: called.append("at the end"))
        assert {"at the end", "with", "without"} == set(called)

    def test_a_result_is_checked_without_a_thread_for_that(self, fault_server: Server) -> None:
        schema = {"type": "object", "required": ["count"]}
        tools = [{"name": "counts", "text": "5", "outputSchema": schema}]
        config = {**fault_server(tools=tools), "outputValidation": "error"}
        with MCPClient.from_config("fault", config) as client, no_threads():
            assert isinstance(client.submit_tool("counts").exception(PATIENCE), InvalidResponse)


class TestDescriptors:
    """What is imported only when something goes wrong cannot be imported if that is the lack of descriptors."""

    def test_an_event_is_logged_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "structlog", None)
        with caplog.at_level(logging.ERROR, "gaia"):
            get_logger("gaia.test").error("server_lost", server="fault")
        assert caplog.messages == ["server_lost server='fault'"]

    def test_the_wait_before_a_restart_is_the_longest_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tenacity", None)
        tracker = RestartTracker(RestartPolicy(jitter=0.0), random.Random(1))
        assert tracker.on_end(0.0) == Retry(30.0)

    def test_what_cannot_be_saved_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "filelock", None)
        with pytest.raises(ConfigError, match="cannot be saved"):
            MCPConfig(tmp_path / "servers.json", create=True).add_server("one", {"command": "true"})
        assert not (tmp_path / "servers.json").exists()

    @pytest.mark.skipif(os.name == "nt", reason="about process groups")
    def test_a_server_and_its_group_are_ended_without_looking_for_them(
        self, fault_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def too_many(*_: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(fork_server, "_is_supported", False)
        monkeypatch.setattr("gaia.mcp.transports.process.find_strays", too_many)
        config = fault_server(child="same_group", state_file=tmp_path / "state")
        client = MCPClient.from_config("fault", config)
        assert client.connect()
        client.disconnect()
        assert wait_until(lambda: client.state is ServerState.CLOSED)
        (grandchild,) = read_state(tmp_path / "state").children
        assert wait_for_end(grandchild)
