"""Spans apart from any client: what starts one, what it tells the other side, and how it ends."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from gaia.telemetry import spans
from gaia.telemetry.spans import ClientSpan, Outcome, ServerSpan, start_client_span
from tests.tracing import Metering, Tracing, attributes_of

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def started(**options: Any) -> ClientSpan:
    span = start_client_span("tools/call echo", {"gen_ai.tool.name": "echo"}, **options)
    assert span is not None
    return span


class TestWithoutTracing:
    def test_there_is_no_span_object_at_all(self) -> None:
        assert start_client_span("tools/call echo", {}) is None

    def test_what_the_application_has_set_as_current_is_passed_on(self) -> None:
        remote = trace.SpanContext(0xAB, 0xCD, is_remote=True, trace_flags=trace.TraceFlags(1))
        here = trace.set_span_in_context(trace.NonRecordingSpan(remote), Context())
        span = started(context=here)
        span.conclude(Outcome("timeout"))
        span.end()
        assert span.inject(None) == {"_meta": {"traceparent": f"00-{0xAB:032x}-{0xCD:016x}-01"}}


class TestProvider:
    def test_the_one_of_the_application_counts_as_soon_as_it_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spans, "_tracer", trace.ProxyTracer("gaia.mcp"))
        for _ in range(2):
            assert start_client_span("ping", {}) is None
            with monkeypatch.context() as patch:
                tracing = Tracing(TracerProvider())
                patch.setattr(trace, "_TRACER_PROVIDER", tracing.provider)
                for _ in range(2):
                    span = start_client_span("ping", {})
                    assert span is not None
                    span.end()
            assert len(tracing.all) == 2


class TestClientSpan:
    def test_the_context_is_added_to_a_copy_of_the_params(self, tracing: Tracing) -> None:
        params = {"name": "echo", "_meta": {"progressToken": 7}}
        span = started()
        sent = span.inject(params)
        assert sent["name"] == "echo"
        assert sent["_meta"].keys() == {"progressToken", "traceparent"}
        assert params == {"name": "echo", "_meta": {"progressToken": 7}}

    @pytest.mark.parametrize("meta", [None, 5, []])
    def test_a_meta_that_is_no_object_is_replaced(self, tracing: Tracing, meta: Any) -> None:
        assert started().inject({"_meta": meta})["_meta"].keys() == {"traceparent"}

    def test_children_begin_in_its_context_and_not_in_the_current_one(self, tracing: Tracing) -> None:
        span = started()
        assert trace.get_current_span() is trace.INVALID_SPAN
        tracing.provider.get_tracer("app").start_span("child", span.context).end()
        span.end()
        assert tracing.tree() == ["tools/call echo", "  child"]

    def test_it_ends_when_it_is_said_to_have_ended_and_a_success_sets_no_status(self, tracing: Tracing) -> None:
        span = started()
        span.conclude(Outcome())
        span.end(2**62)
        assert tracing.call.end_time == 2**62
        assert tracing.call.status.status_code is StatusCode.UNSET
        assert attributes_of(tracing.call) == {"gen_ai.tool.name": "echo"}

    def test_the_current_span_is_linked_if_there_is_one(self, tracing: Tracing) -> None:
        span = started()
        span.link_current()
        with tracing.provider.get_tracer("app").start_as_current_span("restart") as restart:
            span.link_current()
        span.end()
        assert [link.context for link in tracing.call.links] == [restart.get_span_context()]

    def test_a_span_of_the_application_is_used_by_one_call_and_not_ended(self, tracing: Tracing) -> None:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo"}
        tracer = tracing.provider.get_tracer("framework")
        with tracer.start_as_current_span("execute_tool echo", attributes=attributes):
            first = start_client_span("tools/call echo", {"mcp.method.name": "tools/call"}, tools=("echo",))
            second = start_client_span("tools/call echo", {"mcp.method.name": "tools/call"}, tools=("echo",))
            assert first is not None
            assert second is not None
            first.end()
            second.end()
            assert [span.name for span in tracing.all] == ["tools/call echo"]
        assert tracing.only("execute_tool echo").end_time is not None


class TestOutcome:
    def test_success_has_no_attributes_and_a_failure_is_counted_without_its_delivery(self) -> None:
        assert Outcome().attributes == {}
        outcome = Outcome("timeout", delivery="unknown")
        assert outcome.attributes == {"error.type": "timeout", "gaia.mcp.delivery": "unknown"}
        assert outcome.counted == {"error.type": "timeout"}

    def test_an_error_that_was_expected_is_none(self, tracing: Tracing) -> None:
        outcome = Outcome("-32601", "-32601", "unknown method", handled=True)
        assert outcome.counted == {"rpc.response.status_code": "-32601"}
        span = started()
        span.conclude(outcome)
        span.end()
        assert tracing.call.status.status_code is StatusCode.UNSET
        assert attributes_of(tracing.call)["gaia.mcp.handled_error.type"] == "-32601"


class TestServerSpan:
    def test_without_a_context_of_the_other_side_it_begins_a_trace(self, tracing: Tracing) -> None:
        with tracing.provider.get_tracer("app").start_as_current_span("unrelated"):
            ServerSpan("ping", {}, {}, None).answered()
        assert tracing.only("ping").parent is None
        assert tracing.only("ping").kind is SpanKind.SERVER

    @pytest.mark.parametrize("meta", [5, [], {}, {"traceparent": 5}, {"traceparent": "junk"}, {"baggage": []}])
    def test_what_is_no_context_is_none(self, tracing: Tracing, meta: Any) -> None:
        ServerSpan("ping", {}, {}, meta).answered()
        assert tracing.only("ping").parent is None

    def test_it_is_ended_by_the_executor_with_the_time_of_the_answer(self, tracing: Tracing) -> None:
        waiting: list[Callable[[], object]] = []
        ServerSpan("ping", {}, {}, None, executor=waiting.append).answered()
        assert tracing.all == []
        answered = time.time_ns()
        waiting[0]()
        assert (tracing.only("ping").end_time or answered + 1) <= answered

    @pytest.mark.parametrize(("code", "status"), [(-32601, StatusCode.UNSET), (-32603, StatusCode.ERROR)])
    def test_only_our_own_mistakes_are_errors(self, tracing: Tracing, code: int, status: StatusCode) -> None:
        ServerSpan("ping", {}, {}, None).answered(code)
        span = tracing.only("ping")
        assert span.status.status_code is status
        assert attributes_of(span)["rpc.response.status_code"] == str(code)
        assert ("error.type" in attributes_of(span)) == (status is StatusCode.ERROR)

    def test_what_is_not_traced_is_counted_all_the_same(self, metering: Metering) -> None:
        ServerSpan("ping", {"mcp.method.name": "ping"}, {}, None).answered()
        assert metering.value("mcp.server.operation.duration", mcp__method__name="ping") == 1

    def test_a_name_in_refused_params_is_not_counted(self, tracing: Tracing, metering: Metering) -> None:
        span = ServerSpan(
            "tools/call made-up", {"mcp.method.name": "tools/call", "gen_ai.tool.name": "made-up"}, {}, None
        )
        span.answered(-32602)
        (point,) = metering.points("mcp.server.operation.duration")
        assert point.attributes == {"mcp.method.name": "tools/call", "rpc.response.status_code": "-32602"}
        assert attributes_of(tracing.only("tools/call made-up"))["gen_ai.tool.name"] == "made-up"

    @pytest.mark.parametrize(("ambient", "linked"), [(True, 1), (False, 0)])
    def test_the_current_span_is_linked_beside_a_remote_parent(
        self, ambient: bool, linked: int, tracing: Tracing
    ) -> None:
        with trace.use_span(tracing.provider.get_tracer("http").start_span("POST /mcp")):
            ServerSpan("ping", {}, {}, {"traceparent": REMOTE}, ambient=ambient).answered()
            ServerSpan("tools/list", {}, {}, None, ambient=ambient).answered()
        span = tracing.only("ping")
        assert span.parent is not None
        assert span.parent.is_remote
        assert len(span.links) == linked
        assert (tracing.only("tools/list").parent is not None) == ambient
