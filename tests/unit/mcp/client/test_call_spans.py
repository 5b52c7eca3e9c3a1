"""The span of a tool call, attribute by attribute, as the OpenTelemetry conventions for MCP want it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from gaia import telemetry
from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallTimeout
from tests.servers.answers import received, text

Connect = Callable[..., MCPClient]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("test"))
    return exporter


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def meta_of_calls(client: MCPClient, tool: str) -> list[dict[str, Any]]:
    calls = [message for message in received(client) if message.get("method") == "tools/call"]
    return [call["params"].get("_meta", {}) for call in calls if call["params"]["name"] == tool]


def is_sampled(traceparent: str) -> bool:
    return bool(int(traceparent.rsplit("-", 1)[1], 16) & 1)


def test_a_call_has_the_attributes_of_the_convention(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], exporter: InMemorySpanExporter
) -> None:
    client = connect(fault_server())
    assert text(client.call_tool("echo", {"text": "hello"})) == "hello"
    span = only_span(exporter)
    assert (span.name, span.kind, span.status.status_code) == ("tools/call echo", SpanKind.CLIENT, StatusCode.UNSET)
    attributes = attributes_of(span)
    # `initialize` and `tools/list` had the ids before it.
    assert attributes.pop("jsonrpc.request.id") == "3"
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
        "gaia.mcp.server.name": "fault",
    }


def test_a_tool_that_reports_an_error_is_a_tool_error(
    connect: Connect, demo_server: dict[str, Any], exporter: InMemorySpanExporter
) -> None:
    assert connect(demo_server).call_tool("fail", {})["isError"] is True
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == "tool_error"
    assert "rpc.response.status_code" not in attributes_of(span)


def test_an_error_of_the_protocol_has_its_code(
    connect: Connect, demo_server: dict[str, Any], exporter: InMemorySpanExporter
) -> None:
    answer = connect(demo_server).call_tool("add", {"a": 1})
    assert answer["code"] == -32602
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "missing argument 'b'"
    assert attributes_of(span)["error.type"] == "-32602"
    assert attributes_of(span)["rpc.response.status_code"] == "-32602"


def test_a_timeout_has_no_code_and_says_what_is_known_of_delivery(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], exporter: InMemorySpanExporter
) -> None:
    client = connect(fault_server(faults=[{"tool": "echo", "hang": True}]))
    assert client.call_tool("echo", {"text": ""}, timeout=0.1)["error_type"] == "timeout"
    attributes = attributes_of(only_span(exporter))
    assert attributes["error.type"] == "timeout"
    assert attributes["gaia.mcp.delivery"] == "unknown"
    assert "rpc.response.status_code" not in attributes


def test_the_server_can_continue_the_trace(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], exporter: InMemorySpanExporter
) -> None:
    client = connect(fault_server())
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        client.call_tool("echo", {"text": ""})
    finally:
        context.detach(token)
    span = only_span(exporter)
    (meta,) = meta_of_calls(client, "echo")
    assert span.context is not None
    trace_id, span_id = trace.format_trace_id(span.context.trace_id), trace.format_span_id(span.context.span_id)
    assert meta["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
    assert is_sampled(meta["traceparent"])
    assert meta["baggage"] == "tenant=blue"


def test_a_future_has_a_span_too_ended_before_it_is_done(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], exporter: InMemorySpanExporter
) -> None:
    client = connect(fault_server(faults=[{"tool": "sleep", "hang": True}]))
    client.submit_tool("echo", {"text": ""}).result(10)
    with pytest.raises(CallTimeout):
        client.submit_tool("sleep", {"seconds": 0}, timeout=0.1).result(10)
    answered, timed_out = exporter.get_finished_spans()
    assert (answered.name, answered.status.status_code) == ("tools/call echo", StatusCode.UNSET)
    assert attributes_of(timed_out)["error.type"] == "timeout"


def test_a_call_that_is_repeated_after_a_crash_is_one_span_without_error(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], exporter: InMemorySpanExporter, tmp_path: Any
) -> None:
    config = fault_server(
        faults=[{"tool": "pid", "crash": "before_answer"}],
        by_start={"2": {"faults": []}},
        state_file=str(tmp_path / "state"),
    )
    client = connect(config, restart={"initialDelay": 0.05})
    assert json.loads(text(client.call_tool("pid", {}, timeout=20))) > 0
    assert only_span(exporter).status.status_code is StatusCode.UNSET


def test_without_a_tracer_nothing_is_added_to_a_call(
    connect: Connect, fault_server: Callable[..., dict[str, Any]]
) -> None:
    client = connect(fault_server())
    client.call_tool("echo", {"text": ""})
    assert meta_of_calls(client, "echo") == [{}]


def test_a_trace_that_is_not_sampled_is_passed_on(
    connect: Connect, fault_server: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_tracer", TracerProvider(sampler=ALWAYS_OFF).get_tracer("test"))
    client = connect(fault_server())
    client.call_tool("echo", {"text": ""})
    (meta,) = meta_of_calls(client, "echo")
    assert not is_sampled(meta["traceparent"])
