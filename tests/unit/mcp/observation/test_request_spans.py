"""Every request and notification of the client is a CLIENT span, with the attributes that the conventions ask for."""

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallTimeout, JsonRpcError, Overloaded
from gaia.mcp.observation import request_spans
from gaia.mcp.observation.request_spans import Observer
from gaia.telemetry import content
from gaia.telemetry.content import ContentPolicy
from gaia.telemetry.spans import Attributes
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
        assert not any("://" in span.name for span in spans)
        assert [span.name for span in spans if "gen_ai.operation.name" in attributes_of(span)] == ["tools/call echo"]
        for span in spans:
            for name in ("jsonrpc.request.id", "rpc.response.status_code", "mcp.protocol.version"):
                assert isinstance(attributes_of(span).get(name, ""), str)
        (prompt,) = tracing.named("prompts/get greet")
        assert json.loads(attributes_of(prompt)["gen_ai.prompt.variable.name"]) == {"name": "Ada"}

    def test_a_notification_has_no_request_id_and_carries_the_context(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(fault_server())
        sent = [one for one in received(client) if one["method"] == "notifications/initialized"]
        (span,) = tracing.wait_for("notifications/initialized")
        assert "jsonrpc.request.id" not in attributes_of(span)
        assert span.context is not None
        assert f"{span.context.span_id:016x}" in sent[0]["params"]["_meta"]["traceparent"]


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


class TestObserver:
    """Without a client: what is recorded of a message, and that nothing is recorded where nothing would be seen."""

    def test_a_call_is_followed_only_if_somebody_would_notice(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def is_followed() -> bool:
            return Observer("fault").follow("tools/call", {}, "echo") is not None

        caplog.set_level(logging.INFO, "gaia")
        assert not is_followed()
        token = context.attach(baggage.set_baggage("user", "7"))
        assert is_followed()
        context.detach(token)
        with caplog.at_level(logging.DEBUG, "gaia"):
            assert is_followed()
        with monkeypatch.context() as patch:
            Metering(patch)
            assert is_followed()
        with monkeypatch.context() as patch:
            Tracing.installed(patch)
            assert is_followed()
        assert not is_followed()

    @pytest.mark.parametrize(("revision", "has_it"), [(None, False), ("2025-11-25", True)])
    def test_a_new_connection_begins_without_the_revision_of_the_last_one(
        self, tracing: Tracing, revision: str | None, has_it: bool
    ) -> None:
        observer = Observer("fault", {"network.transport": "pipe"})
        observer.begin("ping").ended(None, {})
        observer.protocol_version = revision
        observer.begin("ping").ended(None, {})
        observer.anew().begin("ping").ended(None, {})
        first, second, third = map(attributes_of, tracing.all)
        assert ("mcp.protocol.version" in second) == has_it
        assert (
            first
            == third
            == {
                "mcp.method.name": "ping",
                "network.transport": "pipe",
                "gaia.mcp.server.name": "fault",
            }
        )

    def test_no_content_is_recorded_until_the_secrets_are_known(
        self, tracing: Tracing, caplog: pytest.LogCaptureFixture
    ) -> None:
        observer = Observer("fault", policy=ContentPolicy("redacted"))
        params = {"name": "echo", "arguments": {"text": "it is hunter2"}}
        observer.begin("tools/call", params, target="echo").ended(None, {"content": []})
        observer.redact = lambda text: text.replace("hunter2", "***")
        observer.begin("tools/call", params, target="echo").ended(None, {"content": []})
        before, after = map(attributes_of, tracing.calls)
        assert "gen_ai.tool.call.arguments" not in before
        assert caplog.text == ""
        assert before["gaia.mcp.arguments.size"] == after["gaia.mcp.arguments.size"]
        assert after["gen_ai.tool.call.arguments"] == '{"text":"it is ***"}'

    def test_the_secrets_in_a_uri_are_masked(self, tracing: Tracing) -> None:
        observer = Observer("fault")
        observer.redact = lambda text: text.replace("hunter2", "***")
        observer.begin("resources/read", {"uri": "db://hunter2@host/x"}).ended(None, {})
        assert attributes_of(tracing.only("resources/read"))["mcp.resource.uri"] == "db://***@host/x"

    def test_names_that_an_application_makes_up_do_not_fill_the_memory(
        self, tracing: Tracing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request_spans, "_MAX_DESCRIPTIONS", 4)
        observer = Observer("fault")
        for number in range(10):
            observer.begin("tools/call", target=f"tool{number}").ended(None, {})
        assert len(observer._descriptions) <= 4
        assert len({span.name for span in tracing.calls}) == 10

    def test_many_threads_may_begin_while_the_revision_changes(self, tracing: Tracing) -> None:
        observer = Observer("fault")
        revisions = ["2025-06-18", "2025-11-25"]

        def work(number: int) -> None:
            if number % 10 == 0:
                observer.protocol_version = revisions[number // 10 % 2]
            observer.begin("tools/call", target=f"tool{number % 7}").ended(None, {})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(400)))
        assert len(tracing.calls) == 400
        for span in tracing.calls:
            assert span.name == f"tools/call {attributes_of(span)['gen_ai.tool.name']}"


class TestObservation:
    def test_of_a_trace_that_is_not_sampled_nothing_is_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Tracing.installed(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))
        for name in ("measured", "default_mode"):
            monkeypatch.delattr(content, name)
        observer = Observer("fault")
        observer.redact = str
        observation = observer.begin("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, target="echo")
        assert observation.prepare({"name": "echo"}) != {"name": "echo"}
        observation.numbered(7)
        observation.progressed({"progress": 1})
        observation.ended(None, {"content": []})

    @pytest.mark.parametrize("error", [None, CallTimeout("not answered", delivery="unknown")])
    def test_a_span_is_given_what_is_known_at_the_end_in_one_step(
        self, tracing: Tracing, monkeypatch: pytest.MonkeyPatch, error: Exception | None
    ) -> None:
        steps: list[list[str]] = []
        set_attributes = Span.set_attributes

        def counted(span: Span, attributes: Attributes) -> None:
            steps.append(list(attributes))
            set_attributes(span, attributes)

        monkeypatch.setattr(Span, "set_attributes", counted)
        observer = Observer("fault")
        observer.redact = str
        observation = observer.begin("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, target="echo")
        observation.numbered(7)
        observation.progressed({"progress": 1})
        observation.numbered(8)
        observation.ended(error, {} if error else {"content": []})
        assert len(steps) == 1
        known = ["gaia.mcp.arguments.size", "gen_ai.tool.call.arguments", "gaia.mcp.progress", "jsonrpc.request.id"]
        assert steps[0][: len(known)] == known
        assert attributes_of(tracing.call)["jsonrpc.request.id"] == "8"

    def test_what_comes_after_the_end_is_left_out(self, tracing: Tracing) -> None:
        observation = Observer("fault").begin("tools/call", target="echo")
        observation.ended(None, {})
        observation.progressed({"progress": 1})
        assert "gaia.mcp.progress" not in attributes_of(tracing.call)

    @pytest.mark.parametrize(
        ("error", "error_type", "is_refusal"),
        [
            (Overloaded("the queue is full"), "overloaded", True),
            (CallTimeout("not answered", delivery="unknown"), "timeout", False),
            (JsonRpcError(-32603, "no"), "-32603", False),
            (ValueError("no JSON"), "ValueError", False),
        ],
    )
    def test_what_the_client_could_not_send_is_counted_as_refused(
        self, tracing: Tracing, metering: Metering, error: Exception, error_type: str, is_refusal: bool
    ) -> None:
        Observer("fault").begin("tools/call", target="echo").ended(error, {})
        assert attributes_of(tracing.call)["error.type"] == error_type
        assert metering.value("mcp.client.operation.duration", error__type=error_type) == 1
        assert metering.value("gaia.mcp.client.calls.refused") == is_refusal

    def test_the_time_of_the_answer_counts_and_not_that_of_its_meaning(self, tracing: Tracing) -> None:
        waiting: list[Callable[[], object]] = []
        observation = Observer("fault").begin("tools/call", target="echo", executor=waiting.append)
        observation.stop()
        stopped = time.time_ns()
        observation.ended(None, {})
        assert tracing.calls == []
        waiting[0]()
        assert (tracing.call.end_time or stopped + 1) <= stopped

    def test_each_id_but_the_first_is_told_as_an_event(self, tracing: Tracing) -> None:
        observation = Observer("fault").begin("tools/call", target="echo")
        observation.queued()
        observation.numbered(7)
        observation.requeued("it exited")
        observation.repeated(8, "it exited")
        observation.ended(None, {})
        assert [(event.name, dict(event.attributes or {})) for event in tracing.call.events] == [
            ("gaia.mcp.call.queued", {}),
            ("gaia.mcp.call.requeued", {"gaia.mcp.call.reason": "it exited"}),
            (
                "gaia.mcp.call.repeated",
                {
                    "gaia.mcp.request.earlier_id": "7",
                    "jsonrpc.request.id": "8",
                    "gaia.mcp.call.reason": "it exited",
                },
            ),
        ]
        assert attributes_of(tracing.call)["jsonrpc.request.id"] == "8"

    def test_the_last_progress_is_kept_as_numbers_and_its_message_is_not(self, tracing: Tracing) -> None:
        observation = Observer("fault").begin("tools/call", target="echo")
        observation.progressed({"progress": 1, "total": 4, "message": "reading the diary"})
        observation.progressed({"progress": 2, "total": 10**400})
        observation.progressed({"progress": True, "total": "4"})
        observation.progressed({})
        observation.ended(None, {})
        attributes = attributes_of(tracing.call)
        assert (attributes["gaia.mcp.progress"], attributes["gaia.mcp.progress.total"]) == (2.0, 4.0)
        assert "diary" not in str(attributes)

    def test_the_restart_is_linked_once_however_often_the_call_moves(self, tracing: Tracing) -> None:
        observation = Observer("fault").begin("tools/call", target="echo")
        with tracing.provider.get_tracer("app").start_as_current_span("restart"):
            observation.requeued("it exited")
            observation.resumed()
        observation.ended(None, {})
        assert len(tracing.call.links) == 1

    def test_without_tracing_nothing_of_it_fails(self) -> None:
        observation = Observer("fault").begin("tools/call", target="echo")
        params = {"name": "echo"}
        assert observation.prepare(params) is params
        assert observation.context is None
        observation.queued()
        observation.numbered(1)
        observation.repeated(2, "it exited")
        observation.resumed()
        observation.stop()
        observation.ended(KeyboardInterrupt(), {})

    @pytest.mark.parametrize("result", [{"content": 5}, {"content": [5, None, {"type": ["list"]}]}, {"isError": "yes"}])
    def test_a_result_that_is_none_is_recorded_all_the_same(self, tracing: Tracing, result: Json) -> None:
        Observer("fault").begin("tools/call", target="echo").ended(None, result)
        assert tracing.call.status.status_code is StatusCode.UNSET
        assert attributes_of(tracing.call)["gaia.mcp.result.size"] > 0
