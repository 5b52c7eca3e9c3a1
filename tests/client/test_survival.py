"""What an application's own code, its settings and its surroundings may do to a supervisor: nothing that lasts."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import CallTimeout, ServerCrashed
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.events import Restarted, ServerState
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.pipe_writer import PipeWriter
from gaia.mcp.transports.stdio import StdioTransport
from gaia.mcp.transports.stdio_channel import StderrTail
from gaia.telemetry import spans
from tests.fake_transport import FakeTransport
from tests.servers.answers import text
from tests.tracing import Tracing
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
Server = Callable[..., Json]
Connect = Callable[..., MCPClient]


QUICK = {"restart": {"initialDelay": 0.05, "maxDelay": 0.1, "jitter": 0.0}}
SLOW = {"restart": {"initialDelay": 30.0, "maxDelay": 30.0}}

ANSWER = "still there"


def works(client: MCPClient) -> bool:
    """Whether a call gets through, after a restart if there has to be one."""
    return text(client.call_tool("echo", {"text": ANSWER}, timeout=PATIENCE)) == ANSWER


def crash(client: MCPClient) -> None:
    """Kill the server by one of its own tools, and wait until it is ready again."""
    restarted = threading.Event()
    unsubscribe = client.subscribe(lambda event: restarted.set() if isinstance(event, Restarted) else None)
    assert client.call_tool("look", {}, timeout=PATIENCE)["error_type"] == "server_crashed"
    assert restarted.wait(PATIENCE)
    unsubscribe()


CRASHING: Json = {"tools": [{"name": "look"}], "faults": [{"tool": "look", "crash": "before_answer"}]}


class Faulty(logging.Handler):
    """A handler of the application that does not do what handlers must: catch its own exceptions.

    Not on the main thread: where the application itself runs, SystemExit is its own.
    """

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error
        self.raised = 0

    def handle(self, record: logging.LogRecord) -> bool:
        if record.threadName != "MainThread":
            self.raised += 1
            raise self.error("no")
        return True


class Blocked(logging.Handler):
    """A handler of the application that waits, for a full disk or a distant machine."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        self.may_go_on.wait(PATIENCE)


@pytest.fixture
def add_handler() -> Iterator[Callable[[logging.Handler], None]]:
    """Give gaia's logger a handler for the time of the test."""
    logger = logging.getLogger("gaia")

    def add(handler: logging.Handler) -> None:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)

    handlers = logger.handlers[:]
    yield add
    logger.handlers[:] = handlers


class TestLogHandlers:
    @pytest.mark.parametrize("error", [ValueError, SystemExit, MemoryError])
    def test_one_that_raises_costs_nothing(
        self,
        fault_server: Server,
        add_handler: Callable[[logging.Handler], None],
        error: type[BaseException],
    ) -> None:
        client = MCPClient.from_config("fault", {**fault_server(**CRASHING), **QUICK})
        handler = Faulty(error)
        add_handler(handler)
        try:
            assert client.connect(), client.last_error
            crash(client)
            assert works(client)
        finally:
            client.disconnect()
        assert handler.raised > 0
        assert client.state is ServerState.CLOSED

    def test_a_slow_one_delays_no_deadline_and_no_restart(
        self, fault_server: Server, add_handler: Callable[[logging.Handler], None], connect: Connect
    ) -> None:
        client = connect(
            fault_server(
                **CRASHING,
            ),
            **QUICK,
        )
        handler = Blocked()
        add_handler(handler)
        try:
            # The crash makes the supervisor log.
            client.submit_tool("look", {})
            assert handler.entered.wait(PATIENCE)
            hung = client.submit_tool("sleep", {"seconds": 60}, timeout=0.2)
            with pytest.raises(TimeoutError):
                hung.result(PATIENCE / 2)
            assert works(client)
            assert not handler.may_go_on.is_set()
        finally:
            handler.may_go_on.set()

    def test_one_that_never_returns_keeps_no_manager_from_disconnecting(
        self, tmp_path: Path, add_handler: Callable[[logging.Handler], None]
    ) -> None:
        config = MCPConfig(str(tmp_path / "servers.json"), create=True)
        config.add_server("nowhere", {"command": "no-such-program-anywhere"})
        manager, handler, over = MCPClientManager(config), Blocked(), threading.Event()
        add_handler(handler)
        # It blocks with the event that tells that the server cannot be started.
        manager.load_from_config(timeout=0)
        assert handler.entered.wait(PATIENCE)

        def disconnect() -> None:
            manager.disconnect_all()
            over.set()

        threading.Thread(target=disconnect, daemon=True).start()
        try:
            assert over.wait(PATIENCE / 2)
        finally:
            handler.may_go_on.set()


class FaultyProcessor(SpanProcessor):
    """A span processor of the application with an error in it."""

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self.raised = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._raise("start")

    def on_end(self, span: ReadableSpan) -> None:
        self._raise("end")

    def _raise(self, moment: str) -> None:
        if moment == self._moment:
            self.raised += 1
            raise RuntimeError("a span processor is broken")


class BlockedProcessor(SpanProcessor):
    """A span processor of the application that waits, when a span starts."""

    def __init__(self, name: str = "gaia.mcp.restart") -> None:
        self._name = name
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name.startswith(self._name):
            self.entered.set()
            self.may_go_on.wait(PATIENCE)


class TestSpanProcessors:
    @pytest.mark.parametrize("moment", ["start", "end"])
    def test_one_that_raises_costs_nothing(
        self, fault_server: Server, connect: Connect, tracing: Tracing, moment: str
    ) -> None:
        processor = FaultyProcessor(moment)
        tracing.provider.add_span_processor(processor)
        client = connect(fault_server(**CRASHING), **QUICK)
        crash(client)
        assert works(client)
        assert client.submit_tool("echo", {"text": "hi"}).result(PATIENCE)["content"]
        assert wait_until(lambda: processor.raised > 0)
        assert client.status.restarts == 1

    def test_a_slow_one_delays_no_restart_and_no_deadline(
        self, fault_server: Server, connect: Connect, tracing: Tracing
    ) -> None:
        processor = BlockedProcessor()
        tracing.provider.add_span_processor(processor)
        client = connect(fault_server(**CRASHING), **QUICK)
        try:
            crash(client)
            assert processor.entered.is_set()
            with pytest.raises(CallTimeout):
                client.submit_tool("sleep", {"seconds": 60}, timeout=0.2).result(PATIENCE / 2)
            assert not processor.may_go_on.is_set()
        finally:
            processor.may_go_on.set()

    def test_a_slow_one_does_not_hold_up_the_thread_for_deadlines(
        self, fault_server: Server, connect: Connect, tracing: Tracing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spans, "_START_SECONDS", PATIENCE)
        processor = BlockedProcessor("notifications/cancelled")
        tracing.provider.add_span_processor(processor)
        client = connect(fault_server(faults=[{"tool": "echo", "hang": True}]))
        try:
            for _ in range(2):
                with pytest.raises(CallTimeout):
                    client.submit_tool("echo", {"text": "hi"}, timeout=0.2).result(PATIENCE / 2)
                assert processor.entered.wait(PATIENCE)
            assert not processor.may_go_on.is_set()
        finally:
            processor.may_go_on.set()
        assert len(tracing.wait_for("notifications/cancelled", 2)) == 2


class TestListings:
    def test_a_number_that_is_no_json_costs_its_tool_only(self, fault_server: Server, tmp_path: Path) -> None:
        odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"n": {"default": math.nan}}}}
        client = MCPClient.from_config("fault", {**fault_server(tools=[odd]), "pinTools": "block"})
        with client:
            assert works(client)
            assert "odd" not in [tool.name for tool in client.list_tools()]
            assert "echo" in [tool.name for tool in client.list_tools()]


class TestWorkingDirectory:
    def test_a_relative_one_that_is_gone_costs_the_attempts_until_it_is_there_again(
        self, fault_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, base = tmp_path / "here", tmp_path / "here" / "base"
        base.mkdir(parents=True)
        monkeypatch.chdir(here)
        client = MCPClient.from_config("fault", {**fault_server(**CRASHING), **QUICK, "cwd": "base"})
        with client:
            # The directory of this very process is gone, so that not even a relative path can be made absolute.
            base.rmdir()
            here.rmdir()
            client.call_tool("look", {}, timeout=PATIENCE)
            assert wait_until(lambda: "directory" in (client.last_error or "")), client.last_error
            base.mkdir(parents=True)
            monkeypatch.chdir(here)
            assert works(client)


NO_DURATIONS = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e12, True, "5"]


class TestThreads:
    """An exception on a thread of a connection is its loss: no thread ends silently while callers wait."""

    @pytest.mark.parametrize(
        ("place", "tool"),
        [
            ((Connection, "_answered"), "echo"),
            ((Call, "finish"), "echo"),
            ((StderrTail, "feed"), "hang"),
            ((PipeWriter, "_wait_until_writable"), "deaf"),
        ],
        ids=lambda value: value if isinstance(value, str) else f"{value[0].__name__}.{value[1]}",
    )
    def test_it_costs_a_restart(
        self,
        fault_server: Server,
        connect: Connect,
        monkeypatch: pytest.MonkeyPatch,
        place: tuple[type, str],
        tool: str,
    ) -> None:
        faults = [
            {"tool": "hang", "stderr_flood": 100, "progress": [{"progress": 1}], "hang": True},
            {"tool": "deaf", "hang": True},
        ]
        client = connect(fault_server(tools=[{"name": "hang"}, {"name": "deaf"}], faults=faults), **QUICK)
        original = getattr(*place)
        raised = threading.Event()

        def fail_once(*arguments: Any, **named: Any) -> Any:
            if raised.is_set():
                return original(*arguments, **named)
            raised.set()
            raise ZeroDivisionError("a mistake")

        restarted = threading.Event()
        client.subscribe(lambda event: restarted.set() if isinstance(event, Restarted) else None)
        monkeypatch.setattr(*place, fail_once)
        # More than a pipe holds at once.
        text = "x" * (3_000_000 if tool == "deaf" else 1)
        waiting = client.submit_tool(tool, {"text": text}, timeout=PATIENCE)
        assert isinstance(waiting.exception(PATIENCE), ServerCrashed)
        assert raised.is_set()
        assert restarted.wait(PATIENCE)
        assert works(client)


class TestTimeouts:
    """Those of the application are checked as those of the configuration are."""

    @pytest.mark.parametrize("seconds", NO_DURATIONS, ids=repr)
    def test_one_that_is_no_duration_is_refused_and_the_server_goes_on(self, seconds: Any) -> None:
        transport = FakeTransport()
        transport.answers["tools/call"] = lambda _: {"content": [{"type": "text", "text": ANSWER}]}
        with MCPClient("fake", transport, protocol="handshake") as client:
            for call in (client.call_tool, client.submit_tool):
                with pytest.raises(ValueError, match="timeout: must be a number of seconds above 0"):
                    call("echo", {}, timeout=seconds)
                with pytest.raises(ValueError, match="max_timeout: must be a number of seconds above 0"):
                    call("echo", {}, max_timeout=seconds)
            with pytest.raises(ValueError, match="timeout: must be a number of seconds above 0"):
                client.request("tools/call", {"name": "echo"}, timeout=seconds)
            with pytest.raises(ValueError, match="timeout: must be a number of seconds above 0"):
                client.request("ping", timeout=seconds)
            assert works(client)

    @pytest.mark.parametrize("seconds", NO_DURATIONS, ids=repr)
    def test_so_is_one_of_a_manager_a_client_and_a_transport(self, seconds: Any) -> None:
        # 0 is a good answer to how long the servers of a configuration are waited for.
        if seconds != 0:
            with MCPClientManager() as manager, pytest.raises(ValueError, match="timeout: must be"):
                manager.load_from_config(timeout=seconds)
        for transport in (StdioTransport, HttpTransport):
            with pytest.raises(ValueError, match="timeout: must be"):
                transport("https://localhost/", timeout=seconds)
        with pytest.raises(ValueError, match="timeout: must be"):
            MCPClient("fake", FakeTransport(seconds))
        for name in ("health_interval", "health_timeout", "probe_timeout", "max_timeout", "question_timeout"):
            with pytest.raises(ValueError, match=f"{name}: must be"):
                MCPClient("fake", FakeTransport(), **{name: seconds})

    def test_the_longest_ends_no_supervision(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(**CRASHING), **SLOW)
        # The first restart is immediate.
        crash(client)
        client.call_tool("look", {}, timeout=PATIENCE)
        year = 365 * 24 * 3600
        waiting = client.submit_tool("echo", {"text": ANSWER}, timeout=year)
        assert isinstance(client.submit_tool("echo", {}, timeout=0.05).exception(PATIENCE), TimeoutError)
        assert not waiting.done()
        assert client.state is ServerState.RESTARTING
