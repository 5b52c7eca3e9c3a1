"""What is kept of traces and log events, and how little of it."""

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from gaia.dashboard import span_store
from gaia.dashboard.journal import Journal
from gaia.dashboard.logs import LogStore
from gaia.dashboard.span_store import SpanStore
from gaia.log import get_logger

CALL = {"mcp.method.name": "tools/call", "gaia.mcp.server.name": "it", "gen_ai.tool.name": "echo"}


class TestSpans:
    @pytest.fixture
    def store(self) -> SpanStore:
        return SpanStore(Journal())

    @pytest.fixture
    def provider(self, store: SpanStore) -> TracerProvider:
        provider = TracerProvider()
        provider.add_span_processor(store)
        return provider

    def test_a_call_and_its_round_trips_are_one_call(self, store: SpanStore, provider: TracerProvider) -> None:
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("agent"), tracer.start_as_current_span("tools/call echo", attributes=CALL):
            with tracer.start_as_current_span("tools/call echo", attributes=CALL):
                assert len(store.running()) == 1
            assert store.calls() == []

        (call,) = store.calls()
        assert [span["name"] for span in store.story(call["trace_id"], call["span_id"])] == [
            "agent",
            "tools/call echo",
            "tools/call echo",
        ]

    def test_other_spans_are_no_calls(self, store: SpanStore, provider: TracerProvider) -> None:
        tracer = provider.get_tracer("test")
        tracer.start_span("tools/list", attributes={**CALL, "mcp.method.name": "tools/list"}).end()
        tracer.start_span("tools/call", attributes={"mcp.method.name": "tools/call"}).end()

        assert store.calls() == []

    def test_memory_is_bounded(
        self, store: SpanStore, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(span_store, "_SPANS", 10)
        tracer = provider.get_tracer("test")
        for _ in range(50):
            tracer.start_span("tools/call echo", attributes=CALL).end()
        calls = store.calls()

        kept = [call for call in calls if store.story(call["trace_id"], call["span_id"])]
        assert kept == calls[-10:]

    def test_a_trace_without_end_keeps_its_last_spans(
        self, store: SpanStore, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(span_store, "_SPANS_OF_A_TRACE", 5)
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("agent"):
            for _ in range(20):
                tracer.start_span("tools/call echo", attributes=CALL).end()
            last = store.calls()[-1]
            story = store.story(last["trace_id"], last["span_id"])

        assert len(story) == 6
        assert story[0]["name"] == "agent"

    def test_long_texts_are_cut(self, store: SpanStore, provider: TracerProvider) -> None:
        provider.get_tracer("test").start_span("x", attributes={**CALL, "text": "y" * 100_000}).end()
        (call,) = store.calls()
        (span,) = store.story(call["trace_id"], call["span_id"])

        assert len(span["attributes"]["text"]) < 9000

    def test_nothing_is_kept_once_it_is_closed(self, store: SpanStore, provider: TracerProvider) -> None:
        tracer = provider.get_tracer("test")
        span = tracer.start_span("tools/call echo", attributes=CALL)
        store.close()
        span.end()
        tracer.start_span("tools/call echo", attributes=CALL).end()

        assert store.calls() == store.running() == []


class TestLogs:
    @pytest.fixture
    def store(self) -> Iterator[LogStore]:
        store = LogStore()
        store.attach(logging.DEBUG)
        yield store
        store.detach()

    def test_events_of_a_server_without_a_trace_are_found_by_their_time(self, store: LogStore) -> None:
        logger = get_logger("gaia.test")
        logger.debug("seen", server="it", text="x" * 10_000)
        logger.debug("not_seen", server="other")
        (found,) = store.of_traces({"1"}, "it", 0, None)

        assert (found["event"], found["level"], found["logger"]) == ("seen", "debug", "gaia.test")
        assert len(found["fields"]["text"]) < 5000
        assert store.of_traces({"1"}, "it", 0, 1) == []

    def test_those_of_a_trace_are_found_by_it(self, store: LogStore) -> None:
        tracer = TracerProvider().get_tracer("test")
        with tracer.start_as_current_span("here") as span:
            get_logger("gaia.test").info("seen", server="other")
        trace_id = format(span.get_span_context().trace_id, "032x")

        assert [line["event"] for line in store.of_traces({trace_id}, "it", 0, 1)] == ["seen"]
        assert store.of_traces({"other"}, "other", 0, None) == []

    def test_plain_records_are_kept_too(self, store: LogStore) -> None:
        try:
            raise ValueError("oh")
        except ValueError:
            logging.getLogger("gaia.test").exception("it %s", "broke")
        with store._kept:
            (kept,) = store._records

        assert kept["event"] == "it broke"
        assert "ValueError: oh" in kept["fields"]["exception"]

    def test_the_level_is_put_back(self) -> None:
        logger = logging.getLogger("gaia")
        before, store = logger.level, LogStore()
        store.attach(logging.DEBUG)
        assert logger.level == logging.DEBUG
        store.detach()

        assert logger.level == before
        assert store not in logger.handlers
