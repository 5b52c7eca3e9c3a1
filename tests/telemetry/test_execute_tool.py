"""A tool call inside of a span that is about the execution of that tool already is not recorded twice."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from gaia.mcp.client import MCPClient
from gaia.telemetry import reuse_execute_tool_spans
from tests.servers.answers import received
from tests.tracing import Tracing, attributes_of

Json = dict[str, Any]
Connect = Callable[..., MCPClient]
FaultServer = Callable[..., Json]


@pytest.fixture
def client(fault_server: FaultServer, connect: Connect, tracing: Tracing) -> MCPClient:
    client = connect(fault_server())
    tracing.wait_for("gaia.mcp.start fault")
    tracing.clear()
    return client


@pytest.fixture(autouse=True)
def reusing() -> Iterator[None]:
    yield
    reuse_execute_tool_spans(True)


def execute(tracing: Tracing, tool: str) -> Any:
    """What instrumentation of a model's framework does around a tool call."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return tracing.provider.get_tracer("framework").start_as_current_span(f"execute_tool {tool}", attributes=attributes)


@pytest.mark.parametrize("name", ["echo", "mcp_fault_echo"])
def test_its_attributes_are_added_to_that_span(client: MCPClient, tracing: Tracing, name: str) -> None:
    with execute(tracing, name):
        client.call_tool("echo", {"text": "hi"})
    (span,) = tracing.all
    attributes = attributes_of(span)
    assert span.name == f"execute_tool {name}"
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["jsonrpc.request.id"] == "4"
    assert attributes["gen_ai.tool.call.result"]


def test_the_server_goes_on_with_that_span(client: MCPClient, tracing: Tracing) -> None:
    with execute(tracing, "echo") as span:
        client.call_tool("echo", {"text": "hi"})
    (call,) = [one for one in received(client) if one.get("params", {}).get("name") == "echo"]
    assert trace.format_span_id(span.get_span_context().span_id) in call["params"]["_meta"]["traceparent"]


def test_a_failure_is_told_there(client: MCPClient, tracing: Tracing) -> None:
    with execute(tracing, "nothing"):
        client.call_tool("nothing")
    (span,) = tracing.all
    assert attributes_of(span)["error.type"]
    assert span.status.status_code is StatusCode.ERROR


def test_it_can_be_switched_off(client: MCPClient, tracing: Tracing) -> None:
    reuse_execute_tool_spans(False)
    with execute(tracing, "echo"):
        client.call_tool("echo", {"text": "hi"})
    assert tracing.tree() == ["execute_tool echo", "  tools/call echo"]
