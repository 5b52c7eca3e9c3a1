"""Every request and notification of the client is a CLIENT span, with the attributes that the conventions ask for."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import JsonRpcError
from tests.servers.answers import received
from tests.tracing import Metering, Tracing, attributes_of

Json = dict[str, Any]
Connect = Callable[..., MCPClient]
FaultServer = Callable[..., Json]

ALWAYS = {"mcp.method.name", "network.transport", "gaia.mcp.server.name"}

# The conventions' table for `mcp.client` spans (docs/gen-ai/mcp.md, 2026-08), and ours behind it: what a span of a
# method has besides ALWAYS. "?" marks what depends on the request.
TABLE: dict[str, set[str]] = {
    "server/discover": {"jsonrpc.request.id", "mcp.protocol.version", "rpc.response.status_code"},
    "initialize": {"jsonrpc.request.id", "mcp.protocol.version"},
    "notifications/initialized": {"mcp.protocol.version"},
    "tools/list": {"jsonrpc.request.id", "mcp.protocol.version"},
    "tools/call": {
        "jsonrpc.request.id",
        "mcp.protocol.version",
        "gen_ai.tool.name",
        "gen_ai.operation.name",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    },
    "ping": {"jsonrpc.request.id", "mcp.protocol.version"},
    "resources/list": {"jsonrpc.request.id", "mcp.protocol.version"},
    "resources/templates/list": {"jsonrpc.request.id", "mcp.protocol.version"},
    "resources/read": {"jsonrpc.request.id", "mcp.protocol.version", "mcp.resource.uri"},
    "prompts/list": {"jsonrpc.request.id", "mcp.protocol.version"},
    "prompts/get": {
        "jsonrpc.request.id",
        "mcp.protocol.version",
        "gen_ai.prompt.name",
        "gen_ai.prompt.variable.name",
    },
    "completion/complete": {"jsonrpc.request.id", "mcp.protocol.version"},
}


@pytest.fixture
def demo(feature_server: Json, connect: Connect, tracing: Tracing) -> MCPClient:
    """A client of a server that offers everything, after one request of each kind."""
    client = connect(feature_server, "demo")
    client.call_tool("echo", {"text": "hi"})
    client.request("ping")
    uri = client.list_resources()[0]["uri"]
    client.list_resource_templates()
    client.read_resource(uri)
    prompt = client.list_prompts()[0]
    client.get_prompt(prompt["name"], {"name": "Ada"})
    client.complete({"type": "ref/prompt", "name": prompt["name"]}, {"name": "name", "value": ""})
    return client


def of_conventions(span: ReadableSpan) -> set[str]:
    return {name for name in attributes_of(span) if not name.startswith("gaia.mcp.")} | {"gaia.mcp.server.name"}


class TestTable:
    @pytest.mark.usefixtures("demo")
    def test_each_method_has_exactly_the_attributes_of_the_conventions(self, tracing: Tracing) -> None:
        tracing.wait_for("tools/list")
        spans = [span for span in tracing.all if span.kind is SpanKind.CLIENT]
        found: dict[str, set[str]] = {}
        for span in spans:
            found[attributes_of(span)["mcp.method.name"]] = of_conventions(span) - ALWAYS
        assert found == TABLE

    @pytest.mark.usefixtures("demo")
    def test_names_have_a_target_of_few_values_or_none(self, tracing: Tracing) -> None:
        tracing.wait_for("tools/list")
        names = {span.name for span in tracing.all if span.kind is SpanKind.CLIENT}
        assert names >= {"initialize", "tools/list", "tools/call echo", "prompts/get greet", "resources/read"}
        assert not any("://" in name for name in names)

    @pytest.mark.usefixtures("demo")
    def test_values_are_of_the_types_that_the_conventions_give(self, tracing: Tracing) -> None:
        tracing.wait_for("tools/list")
        for span in tracing.all:
            for name in ("jsonrpc.request.id", "rpc.response.status_code", "mcp.protocol.version"):
                assert isinstance(attributes_of(span).get(name, ""), str)
        assert attributes_of(tracing.only("tools/call echo"))["network.transport"] == "pipe"
        assert attributes_of(tracing.only("tools/call echo"))["gen_ai.operation.name"] == "execute_tool"

    @pytest.mark.usefixtures("demo")
    def test_only_tool_calls_are_operations(self, tracing: Tracing) -> None:
        tracing.wait_for("tools/list")
        assert [span.name for span in tracing.all if "gen_ai.operation.name" in attributes_of(span)] == [
            "tools/call echo"
        ]

    def test_prompt_variables_are_recorded_one_by_one(self, demo: MCPClient, tracing: Tracing) -> None:
        (span,) = tracing.named("prompts/get")
        assert json.loads(attributes_of(span)["gen_ai.prompt.variable.name"]) == {"name": "Ada"}

    def test_a_notification_has_no_request_id_and_carries_the_context(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(fault_server())
        sent = [one for one in received(client) if one["method"] == "notifications/initialized"]
        (span,) = tracing.wait_for("notifications/initialized")
        assert "jsonrpc.request.id" not in attributes_of(span)
        assert span.context is not None
        assert f"{span.context.span_id:016x}" in sent[0]["params"]["_meta"]["traceparent"]


class TestErrors:
    def test_every_error_code_is_an_error_of_the_call(
        self, feature_server: Json, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(feature_server, "demo")
        with pytest.raises(JsonRpcError):
            client.request("no/such/method")
        span = tracing.only("no/such/method")
        assert attributes_of(span)["error.type"] == attributes_of(span)["rpc.response.status_code"] == "-32601"
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description

    def test_a_probe_that_is_refused_is_none(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        connect(fault_server())
        (probe,) = tracing.wait_for("server/discover")
        assert probe.status.status_code is StatusCode.UNSET
        assert "error.type" not in attributes_of(probe)
        assert attributes_of(probe)["rpc.response.status_code"] == attributes_of(probe)["gaia.mcp.handled_error.type"]

    def test_a_result_that_has_a_field_is_error_is_one_only_of_a_tool(
        self, feature_server: Json, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(feature_server, "demo")
        client.call_tool("fail", {})
        span = tracing.call
        assert attributes_of(span)["error.type"] == "tool_error"
        assert "rpc.response.status_code" not in attributes_of(span)


class TestDurations:
    def test_each_message_is_one_point_with_the_attributes_of_its_span(
        self, feature_server: Json, connect: Connect, tracing: Tracing, metering: Metering
    ) -> None:
        client = connect(feature_server, "demo")
        client.call_tool("echo", {"text": "hi"})
        client.call_tool("fail", {})
        with pytest.raises(JsonRpcError):
            client.request("no/such/method")
        points = {
            (point.attributes["mcp.method.name"], point.attributes.get("error.type")): point
            for point in metering.points("mcp.client.operation.duration")
        }
        assert set(points) == {
            ("server/discover", None),
            ("initialize", None),
            ("notifications/initialized", None),
            ("tools/list", None),
            ("tools/call", None),
            ("tools/call", "tool_error"),
            ("no/such/method", "-32601"),
        }
        assert all(point.count == 1 for point in points.values())
        call = dict(points["tools/call", None].attributes)
        assert call == {
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": "echo",
            "gen_ai.operation.name": "execute_tool",
            "mcp.protocol.version": client.protocol_version,
            "network.transport": "pipe",
            "gaia.mcp.server.name": "demo",
        }

    def test_the_buckets_are_those_of_the_conventions(
        self, feature_server: Json, connect: Connect, metering: Metering
    ) -> None:
        connect(feature_server, "demo").disconnect()
        expected = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
        for name in ("mcp.client.operation.duration", "mcp.client.session.duration"):
            assert {tuple(point.explicit_bounds) for point in metering.points(name)} == {expected}
