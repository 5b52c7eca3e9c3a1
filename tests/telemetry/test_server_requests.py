"""Requests that a server makes of us are SERVER spans."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from gaia.mcp.client import MCPClient
from tests.servers.answers import text
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import wait_until

Json = dict[str, Any]
Ask = Callable[..., tuple[MCPClient, list[Json]]]
FaultServer = Callable[..., Json]

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def ask(fault_server: FaultServer) -> Iterator[Ask]:
    """Let a server make these requests; returns the client, and its answers as the server got them."""
    clients: list[MCPClient] = []

    def ask(*requests: Json, **features: Any) -> tuple[MCPClient, list[Json]]:
        config = fault_server(faults=[{"tool": "echo", "server_requests": list(requests)}])
        client = MCPClient("fault", MCPClient.from_config("fault", config).transport, **features)
        clients.append(client)
        assert client.connect(), client.last_error
        client.call_tool("echo", {"text": "go"})
        return client, json.loads(text(client.call_tool("client_answers")))

    yield ask
    for client in clients:
        client.disconnect()


def test_ping(ask: Ask, tracing: Tracing) -> None:
    client, answers = ask({"method": "ping"})
    (span,) = [span for span in tracing.wait_for("ping") if span.kind is SpanKind.SERVER]
    assert attributes_of(span) == {
        "mcp.method.name": "ping",
        "jsonrpc.request.id": str(answers[0]["id"]),
        "mcp.protocol.version": client.protocol_version,
        "network.transport": "pipe",
        "gaia.mcp.server.name": "fault",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None


def test_the_parent_is_what_the_server_sent_along(ask: Ask, tracing: Tracing) -> None:
    ask({"method": "ping", "params": {"_meta": {"traceparent": REMOTE}}})
    (span,) = tracing.wait_for("ping")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == REMOTE[3:-3]
    assert span.parent.is_remote


def test_what_we_do_not_offer_is_the_servers_mistake_and_no_error_of_ours(
    ask: Ask, tracing: Tracing, metering: Metering
) -> None:
    ask({"method": "roots/list"})
    (span,) = tracing.wait_for("roots/list")
    assert attributes_of(span)["rpc.response.status_code"] == "-32601"
    assert "error.type" not in attributes_of(span)
    assert span.status.status_code is StatusCode.UNSET
    (point,) = metering.points("mcp.server.operation.duration")
    assert point.attributes["rpc.response.status_code"] == "-32601"
    # Servers could make up any number of methods, each a series of its own.
    assert point.attributes["mcp.method.name"] == "_OTHER"


def test_user_code_that_answers_runs_within_the_span(ask: Ask, tracing: Tracing) -> None:
    seen: list[int] = []

    def on_elicitation(_: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().span_id)
        raise RuntimeError("nobody is there")

    server_request = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    ask({"method": "elicitation/create", "params": server_request}, on_elicitation=on_elicitation)
    (span,) = tracing.wait_for("elicitation/create")
    assert span.context is not None
    assert seen == [span.context.span_id]
    assert attributes_of(span)["error.type"] == attributes_of(span)["rpc.response.status_code"]
    assert span.status.status_code is StatusCode.ERROR


def test_no_thread_of_a_connection_runs_span_processors(ask: Ask, tracing: Tracing) -> None:
    ended: list[str] = []

    class Names(SpanProcessor):
        def on_end(self, span: Any) -> None:
            if span.kind is SpanKind.SERVER:
                ended.append(threading.current_thread().name)

    tracing.provider.add_span_processor(Names())
    ask({"method": "ping"})
    assert wait_until(lambda: len(ended) == 1)
    assert ended[0].startswith("mcp-fault-callbacks-")
