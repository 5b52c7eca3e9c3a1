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

from gaia.mcp.client import MCPClient
from gaia.mcp.client.supervision.events import Restarted, ServerState
from tests.servers.answers import text
from tests.tracing import Tracing
from tests.waiting import wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
FaultServer = Callable[..., Json]
Connect = Callable[..., MCPClient]

PATIENCE = 20.0

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
        fault_server: FaultServer,
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
        self, fault_server: FaultServer, add_handler: Callable[[logging.Handler], None], connect: Connect
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

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name.startswith("gaia.mcp.restart"):
            self.entered.set()
            self.may_go_on.wait(PATIENCE)


class TestSpanProcessors:
    @pytest.mark.parametrize("moment", ["start", "end"])
    def test_one_that_raises_costs_nothing(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing, moment: str
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
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        processor = BlockedProcessor()
        tracing.provider.add_span_processor(processor)
        client = connect(fault_server(**CRASHING), **QUICK)
        try:
            crash(client)
            assert processor.entered.is_set()
            with pytest.raises(TimeoutError):
                client.submit_tool("sleep", {"seconds": 60}, timeout=0.2).result(PATIENCE / 2)
            assert not processor.may_go_on.is_set()
        finally:
            processor.may_go_on.set()


class TestListings:
    def test_a_number_that_is_no_json_costs_its_tool_only(self, fault_server: FaultServer, tmp_path: Path) -> None:
        odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"n": {"default": math.nan}}}}
        client = MCPClient.from_config("fault", {**fault_server(tools=[odd]), "pinTools": "block"})
        with client:
            assert works(client)
            assert "odd" not in [tool.name for tool in client.list_tools()]
            assert "echo" in [tool.name for tool in client.list_tools()]


class TestWorkingDirectory:
    def test_a_relative_one_that_is_gone_costs_the_attempts_until_it_is_there_again(
        self, fault_server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, base = tmp_path / "here", tmp_path / "here" / "base"
        base.mkdir(parents=True)
        monkeypatch.chdir(here)
        client = MCPClient.from_config("fault", {**fault_server(**CRASHING), **QUICK, "cwd": "base"})
        with client:
            # The directory of this very process is gone, so that not even a relative path can be made absolute.
            base.rmdir()
            here.rmdir()
            restarts = threading.Event()
            client.call_tool("look", {}, timeout=PATIENCE)
            assert wait_until(lambda: "directory" in (client.last_error or "")), client.last_error
            del restarts
            base.mkdir(parents=True)
            monkeypatch.chdir(here)
            assert works(client)
