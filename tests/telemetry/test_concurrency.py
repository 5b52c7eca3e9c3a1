"""However many threads call at once: each call is recorded once, under its own parent, with its own id."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gaia.mcp.client import MCPClient
from tests.servers.answers import received, text
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import PATIENCE

Json = dict[str, Any]
Connect = Callable[..., MCPClient]
FaultServer = Callable[..., Json]

CALLERS = 8
CALLS = 25


def test_nothing_is_recorded_twice(
    fault_server: FaultServer, connect: Connect, tracing: Tracing, metering: Metering
) -> None:
    client = connect(fault_server())
    tracer = tracing.provider.get_tracer("app")

    def work(caller: int) -> None:
        with tracer.start_as_current_span(f"caller {caller}"):
            for number in range(CALLS):
                words = f"{caller}/{number}"
                if number % 2:
                    assert text(client.call_tool("echo", {"text": words})) == words
                else:
                    assert text(client.submit_tool("echo", {"text": words}).result(PATIENCE)) == words

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(work, range(CALLERS)))

    sent = {str(one["id"]): one["params"] for one in received(client) if one.get("method") == "tools/call"}
    parents = {span.context.span_id: span.name for span in tracing.named("caller") if span.context is not None}
    # Those of futures end on a callback thread.
    calls = tracing.wait_for("tools/call echo", CALLERS * CALLS)
    assert len(calls) == CALLERS * CALLS
    assert len({attributes_of(span)["jsonrpc.request.id"] for span in calls}) == len(calls)
    for span in calls:
        params = sent[attributes_of(span)["jsonrpc.request.id"]]
        words = params["arguments"]["text"]
        assert span.parent is not None
        assert parents[span.parent.span_id] == f"caller {words.split('/')[0]}"
        assert span.context is not None
        assert f"{span.context.span_id:016x}" in params["_meta"]["traceparent"]
        assert words in attributes_of(span)["gen_ai.tool.call.arguments"]
        assert words in attributes_of(span)["gen_ai.tool.call.result"]
    assert metering.value("mcp.client.operation.duration", gen_ai__tool__name="echo") == len(calls)
