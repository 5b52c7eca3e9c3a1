"""The span of a tool call. What it has for each kind of call, failure and context: see `test_recorded_spans.py`."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.telemetry.spans import running_readers
from tests.servers.answers import received, text
from tests.tracing import Tracing, attributes_of
from tests.waiting import PATIENCE

Json = dict[str, Any]
FaultServer = Callable[..., Json]


Connect = Callable[..., MCPClient]


def meta_of_echo(client: MCPClient) -> Json:
    """What the server got as `_meta` of its first call of ``echo``."""
    calls = [one for one in received(client) if one.get("params", {}).get("name") == "echo"]
    meta: Json = calls[0]["params"].get("_meta", {})
    return meta


class TestSpan:
    def test_of_a_call_that_succeeds(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
        span = tracing.call
        assert span.name == "tools/call echo"
        assert span.kind is SpanKind.CLIENT
        assert span.status.status_code is StatusCode.UNSET
        # The probe, initialize and tools/list came before it.
        assert attributes_of(span) == {
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": "echo",
            "gen_ai.operation.name": "execute_tool",
            "mcp.protocol.version": HANDSHAKE_REVISIONS[0],
            "network.transport": "pipe",
            "jsonrpc.request.id": "4",
            "gaia.mcp.server.name": "fault",
            "gen_ai.tool.call.arguments": '{"text":"hi"}',
            "gen_ai.tool.call.result": '{"content":[{"type":"text","text":"hi"}]}',
            "gaia.mcp.arguments.size": 13,
            "gaia.mcp.result.size": 41,
            "gaia.mcp.result.types": ("text",),
        }
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.end_time > span.start_time
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "gaia.mcp"

    def test_it_does_not_become_the_current_one(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "progress": [{"progress": 1}]}]))
        current: list[Any] = []
        client.call_tool("echo", {"text": "hi"}, on_progress=lambda *_: current.append(trace.get_current_span()))
        assert not current[0].get_span_context().is_valid

    def test_through_the_manager_it_is_the_same(
        self, tracing: Tracing, fault_server: FaultServer, tmp_path: Any
    ) -> None:
        with MCPClientManager(MCPConfig(tmp_path / "servers.json", create=True)) as manager:
            manager.add_server("my-server", fault_server())
            manager.call_tool("mcp_my-server_echo", {"text": "hi"})
        assert tracing.call.name == "tools/call echo"
        assert attributes_of(tracing.call)["gaia.mcp.server.name"] == "my-server"


class TestFailure:
    """Every failure has an `error.type` of few values, and every span an end."""

    def test_an_interrupt(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "progress": [{"progress": 1}], "await_cancel": True}]))

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client.call_tool("echo", {"text": "hi"}, on_progress=interrupt)
        assert tracing.call.status.status_code is StatusCode.ERROR
        assert attributes_of(tracing.call)["error.type"] == "KeyboardInterrupt"

    @pytest.mark.parametrize(
        ("fault", "error_type", "description", "more"),
        [
            ({"error": {"code": -1, "message": "the reason"}}, "-1", "the reason", {"rpc.response.status_code": "-1"}),
            ({"await_cancel": True}, "timeout", "not answered", {"gaia.mcp.delivery": "unknown"}),
        ],
    )
    def test_a_future(
        self,
        tracing: Tracing,
        fault_server: FaultServer,
        connect: Connect,
        fault: Json,
        error_type: str,
        description: str,
        more: Json,
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", **fault}]))
        timeout = 0.05 if "await_cancel" in fault else PATIENCE
        client.submit_tool("echo", {"text": "hi"}, timeout=timeout).exception(PATIENCE)
        tracing.wait_for("tools/call echo")
        assert tracing.call.status.status_code is StatusCode.ERROR
        assert description in str(tracing.call.status.description)
        attributes = attributes_of(tracing.call)
        names = ("error.type", "rpc.response.status_code", "gaia.mcp.delivery")
        assert {name: attributes[name] for name in names if name in attributes} == {"error.type": error_type, **more}


class TestPropagation:
    def test_beside_the_progress_token(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"}, on_progress=lambda *_: None)
        assert meta_of_echo(client).keys() == {"traceparent", "progressToken"}


class ThreadNames(SpanProcessor):
    """Notes where spans end. Processors and exporters are the application's code, and may be slow."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def on_start(self, span: Span, parent_context: Any = None) -> None: ...

    def on_end(self, span: ReadableSpan) -> None:
        self.names.append((span.name, threading.current_thread().name))


def test_no_thread_of_a_worker_or_a_connection_runs_span_processors(
    tracing: Tracing, fault_server: FaultServer, connect: Connect
) -> None:
    threads = ThreadNames()
    tracing.provider.add_span_processor(threads)
    client = connect(fault_server())
    client.call_tool("echo", {"text": "hi"})
    client.submit_tool("echo", {"text": "hi"}).result(PATIENCE)
    client.disconnect()
    here = threading.current_thread().name
    assert ("tools/call echo", here) in threads.names
    elsewhere = [(name, thread) for name, thread in threads.names if thread != here]
    assert {name for name, _ in elsewhere} >= {"gaia.mcp.start fault", "initialize", "tools/call echo"}
    assert all(thread.startswith("mcp-fault-callbacks-") for _, thread in elsewhere)


def test_the_span_of_a_future_has_ended_when_its_callbacks_are_called(
    tracing: Tracing, fault_server: FaultServer
) -> None:
    # The server answers when the callback has been added: one that is added later is called by the thread that adds it.
    added: queue.SimpleQueue[None] = queue.SimpleQueue()

    def roots() -> list[str]:
        added.get(timeout=PATIENCE)
        return []

    config = fault_server(faults=[{"tool": "client_answers", "server_requests": [{"method": "roots/list"}]}])
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    with MCPClient("fault", MCPClient.from_config("fault", config).transport, roots=roots) as client:
        for number in range(1, 20):
            client.submit_tool("client_answers").add_done_callback(lambda _: ended.put(len(tracing.calls)))
            added.put(None)
            assert ended.get(timeout=PATIENCE) == number


def test_a_span_processor_that_never_returns_does_not_keep_a_future_from_being_done(
    tracing: Tracing, fault_server: FaultServer, connect: Connect
) -> None:
    held = threading.Event()

    class Stuck(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if span.name == "tools/call echo":
                held.wait(PATIENCE)

    client = connect(fault_server())
    tracing.provider.add_span_processor(Stuck())
    try:
        for _ in range(10):
            client.submit_tool("echo", {"text": "hi"}).result(PATIENCE)
    finally:
        held.set()


def test_each_call_is_one_event_of_the_log_with_its_id(
    fault_server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [
        {"tool": "pid", "error": {"code": -1, "message": "no"}},
        {"tool": "children", "result": {"content": [], "isError": True}},
    ]
    client = connect(fault_server(faults=faults))
    with caplog.at_level(logging.DEBUG, "gaia"):
        client.call_tool("echo", {"text": "secret text"})
        client.call_tool("pid")
        client.call_tool("children")
    events = [getattr(record, "event_fields", {}) for record in caplog.records if "tool_called" in record.message]
    assert [(one["server"], one["tool"], one["call_id"], one["error_type"]) for one in events] == [
        ("fault", "echo", 4, None),
        ("fault", "pid", 5, "jsonrpc"),
        ("fault", "children", 6, "tool_error"),
    ]
    assert all(one["seconds"] > 0 for one in events)
    assert "secret text" not in caplog.text


def test_without_tracing_no_thread_is_started_for_it(fault_server: FaultServer, connect: Connect) -> None:
    client = connect(fault_server(faults=[{"tool": "echo", "server_requests": [{"method": "ping"}]}]))
    client.call_tool("echo", {"text": "hi"})
    client.call_tool("client_answers")
    assert not [thread.name for thread in threading.enumerate() if "callbacks" in thread.name]


class TestReader:
    """What reads spans while they run, such as the dashboard."""

    @pytest.mark.parametrize("reads", [True, False])
    def test_it_is_given_the_arguments_at_once(
        self, tracing: Tracing, fault_server: FaultServer, *, reads: bool
    ) -> None:
        started: list[Span] = []
        seen: list[bool] = []

        class Starts(SpanProcessor):
            def on_start(self, span: Span, parent_context: context.Context | None = None) -> None:
                started.append(span)

        def roots() -> list[str]:
            (call,) = [span for span in started if span.name == "tools/call client_answers"]
            seen.append("gen_ai.tool.call.arguments" in (call.attributes or {}))
            return []

        tracing.provider.add_span_processor(Starts())
        config = fault_server(faults=[{"tool": "client_answers", "server_requests": [{"method": "roots/list"}]}])
        reader = object()
        if reads:
            running_readers.add(reader)
        try:
            with MCPClient("fault", MCPClient.from_config("fault", config).transport, roots=roots) as client:
                client.call_tool("client_answers", {"text": "hi"})
        finally:
            running_readers.discard(reader)
        assert seen == [reads]
        assert "gen_ai.tool.call.arguments" in attributes_of(tracing.calls[0])
