"""The span of a tool call: after the OpenTelemetry conventions, known to the server, and free when nobody traces."""

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.mcp.transports.base import MCPTransport
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


class OwnTransport(MCPTransport):
    """A user's own, of which nothing more is known than its four methods."""

    def __init__(self) -> None:
        self.sent: list[Json] = []

    def connect(self) -> bool:
        return True

    def disconnect(self) -> None: ...

    def is_connected(self) -> bool:
        return True

    def send_request(self, method: str, params: Json | None = None) -> Json:
        self.sent.append(params or {})
        return {"result": {"protocolVersion": "2025-06-18"}}


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

    def test_the_request_id_is_the_one_on_the_wire(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"})
        (call,) = [one for one in received(client) if one.get("params", {}).get("name") == "echo"]
        assert (tracing.calls[0].attributes or {})["jsonrpc.request.id"] == str(call["id"])

    def test_a_call_that_only_makes_no_tool_call_has_none(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        client = connect(fault_server(), disabledTools=["pid"])
        assert client.call_tool("pid")["error_type"] == "denied"
        assert tracing.calls == []

    def test_it_is_a_child_of_the_callers(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        with tracing.provider.get_tracer("agent").start_as_current_span("think") as parent:
            client.call_tool("echo", {"text": "hi"})
            client.submit_tool("echo", {"text": "hi"}).result(PATIENCE)
        first, second = tracing.wait_for("tools/call echo", 2)
        for span in (first, second):
            assert span.parent is not None
            assert span.parent.span_id == parent.get_span_context().span_id
            assert span.context is not None
            assert span.context.trace_id == parent.get_span_context().trace_id

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

    def test_a_call_that_is_repeated_after_a_crash_has_one_and_it_is_no_error(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect, tmp_path: Path
    ) -> None:
        config = fault_server(
            faults=[{"tool": "pid", "crash": "before_answer"}],
            by_start={"2": {"faults": []}},
            state_file=str(tmp_path / "state"),
        )
        client = connect(config, restart={"initialDelay": 0.05})
        assert int(text(client.call_tool("pid", timeout=PATIENCE))) > 0
        assert client.status.restarts == 1
        assert tracing.call.status.status_code is StatusCode.UNSET

    def test_over_a_transport_that_we_know_nothing_of_it_says_less(self, tracing: Tracing) -> None:
        with MCPClient("own", OwnTransport()) as client:
            client.call_tool("echo", {})
            client.submit_tool("echo", {}).result(PATIENCE)
        for span in tracing.calls:
            assert dict(span.attributes or {}) == {
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": "echo",
                "gen_ai.operation.name": "execute_tool",
                "mcp.protocol.version": "2025-06-18",
                "gaia.mcp.server.name": "own",
                "gen_ai.tool.call.arguments": "{}",
                "gen_ai.tool.call.result": '{"protocolVersion":"2025-06-18"}',
                "gaia.mcp.arguments.size": 2,
                "gaia.mcp.result.size": 32,
            }
        assert len(tracing.calls) == 2


class TestFailure:
    """Every failure has an `error.type` of few values, and every span an end."""

    def assert_failed(self, tracing: Tracing, error_type: str, description: str, **more: str | None) -> None:
        assert tracing.call.status.status_code is StatusCode.ERROR
        assert description in str(tracing.call.status.description)
        assert attributes_of(tracing.call)["error.type"] == error_type
        assert attributes_of(tracing.call).get("rpc.response.status_code") == more.get("code")
        assert attributes_of(tracing.call).get("gaia.mcp.delivery") == more.get("delivery")

    def test_a_result_that_is_an_error(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        result = {"content": [{"type": "text", "text": "no such file"}], "isError": True}
        client = connect(fault_server(faults=[{"tool": "echo", "result": result}]))
        assert client.call_tool("echo", {"text": "hi"}) == result
        self.assert_failed(tracing, "tool_error", "tool reported an error")

    @pytest.mark.parametrize("code", [-32602, -32603, 42])
    def test_a_json_rpc_error(self, tracing: Tracing, fault_server: FaultServer, connect: Connect, code: int) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "error": {"code": code, "message": "the reason"}}]))
        client.call_tool("echo", {"text": "hi"})
        self.assert_failed(tracing, str(code), "the reason", code=str(code))

    def test_a_timeout(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]))
        client.call_tool("echo", {"text": "hi"}, timeout=0.05)
        self.assert_failed(tracing, "timeout", "not answered", delivery="unknown")

    def test_a_crash(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "crash": "before_answer", "exit_code": 3}]))
        client.call_tool("echo", {"text": "hi"})
        self.assert_failed(tracing, "server_crashed", "exited with code 3", delivery="unknown")

    def test_a_server_that_is_not_there(self, tracing: Tracing) -> None:
        client = MCPClient.from_config("fault", {"command": "no-such-program-anywhere"})
        client.connect()
        client.call_tool("echo", {})
        self.assert_failed(tracing, "server_unavailable", "no-such-program-anywhere", delivery="not_sent")

    def test_a_client_that_is_not_connected(self, tracing: Tracing, fault_server: FaultServer) -> None:
        client = MCPClient.from_config("fault", fault_server())
        for call in (client.call_tool, client.submit_tool):
            with pytest.raises(RuntimeError):
                call("echo", {})
        assert [(span.attributes or {})["error.type"] for span in tracing.calls] == ["not_connected"] * 2

    def test_arguments_that_are_no_json(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        for call in (client.call_tool, client.submit_tool):
            with pytest.raises(ValueError, match="JSON"):
                call("echo", {"text": object()})
        for span in tracing.calls:
            assert (span.attributes or {})["error.type"] == "ValueError"
            assert "jsonrpc.request.id" not in (span.attributes or {})
            assert span.status.status_code is StatusCode.ERROR
        assert len(tracing.calls) == 2

    def test_an_interrupt(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "progress": [{"progress": 1}], "await_cancel": True}]))

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client.call_tool("echo", {"text": "hi"}, on_progress=interrupt)
        self.assert_failed(tracing, "KeyboardInterrupt", "")

    def test_a_future_that_fails(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "error": {"code": -1, "message": "the reason"}}]))
        client.submit_tool("echo", {"text": "hi"}).exception(PATIENCE)
        tracing.wait_for("tools/call echo")
        self.assert_failed(tracing, "-1", "the reason", code="-1")

    def test_a_future_that_is_cancelled(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]))
        client.submit_tool("echo", {"text": "hi"}).cancel()
        client.disconnect()
        self.assert_failed(tracing, "cancelled", "cancelled", delivery="unknown")

    def test_a_future_that_times_out_says_whether_it_was_sent(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]))
        client.submit_tool("echo", {"text": "hi"}, timeout=0.05).exception(PATIENCE)
        tracing.wait_for("tools/call echo")
        self.assert_failed(tracing, "timeout", "not answered", delivery="unknown")


class TestPropagation:
    def test_the_server_gets_the_context_of_the_span(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"})
        span_context = tracing.call.context
        assert span_context is not None
        trace_id = trace.format_trace_id(span_context.trace_id)
        span_id = trace.format_span_id(span_context.span_id)
        assert meta_of_echo(client) == {"traceparent": f"00-{trace_id}-{span_id}-{span_context.trace_flags:02x}"}
        assert span_context.trace_flags.sampled

    def test_and_the_callers_baggage(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        token = context.attach(baggage.set_baggage("tenant", "blue"))
        try:
            client.submit_tool("echo", {"text": "hi"}).result(PATIENCE)
        finally:
            context.detach(token)
        assert meta_of_echo(client)["baggage"] == "tenant=blue"

    def test_beside_the_progress_token(self, tracing: Tracing, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"}, on_progress=lambda *_: None)
        assert meta_of_echo(client).keys() == {"traceparent", "progressToken"}

    def test_of_a_trace_that_is_not_sampled_the_server_learns_just_that(
        self, monkeypatch: pytest.MonkeyPatch, fault_server: FaultServer, connect: Connect
    ) -> None:
        tracing = Tracing.installed(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"})
        assert tracing.calls == []
        flags = int(meta_of_echo(client)["traceparent"].rpartition("-")[2], 16)
        assert not trace.TraceFlags(flags).sampled

    def test_the_arguments_of_the_caller_are_left_alone(
        self, tracing: Tracing, fault_server: FaultServer, connect: Connect
    ) -> None:
        arguments = {"text": "hi"}
        connect(fault_server()).call_tool("echo", arguments)
        assert arguments == {"text": "hi"}


class TestWithoutTracing:
    def test_the_request_is_as_without_telemetry(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        client.call_tool("echo", {"text": "hi"})
        (call,) = [one for one in received(client) if one.get("params", {}).get("name") == "echo"]
        assert call == {
            "jsonrpc": "2.0",
            "id": 4,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "hi"}},
        }

    def test_a_context_that_somebody_else_set_is_passed_on(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        remote = trace.SpanContext(0xAB, 0xCD, is_remote=True, trace_flags=trace.TraceFlags(1))
        token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
        try:
            client.call_tool("echo", {"text": "hi"})
        finally:
            context.detach(token)
        assert meta_of_echo(client) == {"traceparent": f"00-{0xAB:032x}-{0xCD:016x}-01"}


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


class TestLog:
    """The other thing that is seen of a call from outside."""

    def test_each_call_is_one_event_with_its_id(
        self, fault_server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "pid", "error": {"code": -1, "message": "no"}}]))
        with caplog.at_level(logging.DEBUG, "gaia"):
            client.call_tool("echo", {"text": "secret text"})
            client.call_tool("pid")
        events = [getattr(record, "event_fields", {}) for record in caplog.records if "tool_called" in record.message]
        assert [(one["server"], one["tool"], one["call_id"], one["error_type"]) for one in events] == [
            ("fault", "echo", 4, None),
            ("fault", "pid", 5, "jsonrpc"),
        ]
        assert all(one["seconds"] > 0 for one in events)
        assert "secret text" not in caplog.text

    def test_a_tool_that_reports_an_error_is_one(
        self, fault_server: FaultServer, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "result": {"content": [], "isError": True}}]))
        with caplog.at_level(logging.DEBUG, "gaia"):
            client.call_tool("echo", {"text": "hi"})
        assert "error_type='tool_error'" in caplog.text


def test_without_tracing_no_thread_is_started_for_it(fault_server: FaultServer, connect: Connect) -> None:
    client = connect(fault_server(faults=[{"tool": "echo", "server_requests": [{"method": "ping"}]}]))
    client.call_tool("echo", {"text": "hi"})
    client.call_tool("client_answers")
    assert not [thread.name for thread in threading.enumerate() if "callbacks" in thread.name]


def test_over_a_transport_of_ones_own_the_handshake_has_spans_too(tracing: Tracing) -> None:
    transport = OwnTransport()
    with MCPClient("own", transport):
        pass
    assert transport.sent
    assert all("traceparent" in params["_meta"] for params in transport.sent)
    (span,) = tracing.all
    assert span.name == "initialize"
    assert attributes_of(span)["mcp.protocol.version"] == "2025-06-18"


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
