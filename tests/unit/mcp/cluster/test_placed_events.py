import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from gaia.mcp.supervision.events import Event, ToolsChanged
from gaia.runtime.cancellation import current_scope
from tests.hosts import LocalEngine
from tests.tracing import Metering, Tracing, attributes_of
from tests.unit.mcp.cluster.conftest import Place, link_of
from tests.waiting import PATIENCE, wait_until

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "ok?", "requestedSchema": {}, "_meta": {"traceparent": REMOTE}},
}


def test_tools_that_change(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    tool = {"name": "late", "inputSchema": {"type": "object"}}
    client = place(fault_server(faults=[{"tool": "echo", "change_tools": [tool]}]))
    events: list[Event] = []
    assert client.connect()
    client.subscribe(events.append)
    client.call_tool("echo", {"text": "x"})
    assert wait_until(lambda: any(isinstance(one, ToolsChanged) and "late" in one.added for one in events))


def test_a_question_is_asked_here(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
    server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
    client = place(server, on_elicitation=lambda _: {"action": "decline"})
    assert client.connect()
    assert "decline" in str(client.call_tool("client_answers", timeout=PATIENCE))


def test_a_question_that_was_not_offered_is_refused(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
    server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
    client = place(server)
    assert client.connect()
    assert "-32601" in str(client.call_tool("client_answers", timeout=PATIENCE))


def is_ours(span: ReadableSpan) -> bool:
    """Whether it is the program's: the host, which is in the same process here, records another one."""
    return span.name == "elicitation/create" and attributes_of(span).get("network.transport") == "tcp"


def our_question(tracing: Tracing) -> ReadableSpan:
    assert wait_until(lambda: any(map(is_ours, tracing.all)))
    (span,) = filter(is_ours, tracing.all)
    return span


def test_the_answer_is_given_within_a_span(
    place: Place, fault_server: Callable[..., dict[str, Any]], tracing: Tracing, metering: Metering
) -> None:
    within: list[int] = []
    ended_on: list[str] = []

    class Threads(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if is_ours(span):
                ended_on.append(threading.current_thread().name)

    def refuse(_: Any) -> Any:
        within.append(trace.get_current_span().get_span_context().span_id)
        raise RuntimeError("no person is there")

    tracing.provider.add_span_processor(Threads())
    client = place(
        fault_server(faults=[{"tool": "client_answers", "server_requests": [QUESTION]}]), on_elicitation=refuse
    )
    assert client.connect()
    assert "-32603" in str(client.call_tool("client_answers", timeout=PATIENCE))
    span = our_question(tracing)
    assert span.context is not None
    assert within == [span.context.span_id]
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == REMOTE[3:-3]
    found = attributes_of(span)
    assert (found["error.type"], found["rpc.response.status_code"]) == ("-32603", "-32603")
    assert found["mcp.protocol.version"] == client.protocol_version
    ours = {"network.transport": "tcp", "gaia.mcp.server.name": "it", "error.type": "-32603"}
    assert wait_until(lambda: metering.value("mcp.server.operation.duration", **ours) == 1)
    assert wait_until(lambda: len(ended_on) == 1)
    assert ended_on[0].startswith("mcp-it-callbacks-")


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_span_of_a_question_whose_host_is_gone(
    place: Place,
    engine: LocalEngine,
    fault_server: Callable[..., dict[str, Any]],
    tracing: Tracing,
    is_lost: bool,
) -> None:
    is_asked, is_cancelled = threading.Event(), threading.Event()

    def wait(_: Any) -> Any:
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(is_cancelled.set)
        is_asked.set()
        is_cancelled.wait(PATIENCE)

    client = place(
        fault_server(faults=[{"tool": "client_answers", "server_requests": [QUESTION]}]), on_elicitation=wait
    )
    assert client.connect()
    client.submit_tool("client_answers")
    assert is_asked.wait(PATIENCE)
    if is_lost:
        old = link_of(engine).lose()
        assert old is not None
        old.stop()
    else:
        client.disconnect()
    assert attributes_of(our_question(tracing))["error.type"] == "connection_closed"
    assert is_cancelled.wait(PATIENCE)
