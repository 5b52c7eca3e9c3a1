"""The spans and the log events that the page shows."""

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from gaia.dashboard import stores
from gaia.dashboard.live_updates import UpdateBuffer
from gaia.dashboard.stores import LogStore, SpanStore
from gaia.runtime.log import get_logger

CALL = {"mcp.method.name": "tools/call", "gaia.mcp.server.name": "it", "gen_ai.tool.name": "echo"}


@pytest.fixture
def store() -> SpanStore:
    return SpanStore(UpdateBuffer())


@pytest.fixture
def tracer(store: SpanStore) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(store)
    return provider.get_tracer("test")


def test_a_call_and_its_round_trips_are_one_call(store: SpanStore, tracer: Tracer) -> None:
    with tracer.start_as_current_span("agent"), tracer.start_as_current_span("tools/call echo", attributes=CALL):
        with tracer.start_as_current_span("tools/call echo", attributes=CALL):
            assert len(store.running()) == 1
        assert store.calls() == []

    (call,) = store.calls()
    assert [span["name"] for span in store.related(call["trace_id"], call["span_id"])] == [
        "agent",
        "tools/call echo",
        "tools/call echo",
    ]


def test_other_spans_are_no_calls_and_long_texts_are_cut(store: SpanStore, tracer: Tracer) -> None:
    tracer.start_span("tools/list", attributes={**CALL, "mcp.method.name": "tools/list"}).end()
    tracer.start_span("tools/call", attributes={"mcp.method.name": "tools/call"}).end()
    assert store.calls() == []
    tracer.start_span("x", attributes={**CALL, "text": "y" * 100_000}).end()
    (call,) = store.calls()
    (span,) = store.related(call["trace_id"], call["span_id"])
    assert len(span["attributes"]["text"]) < 9000


def test_memory_is_bounded(store: SpanStore, tracer: Tracer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MAX_SPANS", 10)
    for _ in range(50):
        tracer.start_span("tools/call echo", attributes=CALL).end()
    calls = store.calls()

    kept = [call for call in calls if store.related(call["trace_id"], call["span_id"])]
    assert kept == calls[-10:]


def test_a_trace_without_end_keeps_its_last_spans(
    store: SpanStore, tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_MAX_SPANS_OF_A_TRACE", 5)
    with tracer.start_as_current_span("agent"):
        for _ in range(20):
            tracer.start_span("tools/call echo", attributes=CALL).end()
        last = store.calls()[-1]
        story = store.related(last["trace_id"], last["span_id"])

    assert len(story) == 6
    assert story[0]["name"] == "agent"


def test_nothing_is_kept_once_it_is_closed(store: SpanStore, tracer: Tracer) -> None:
    span = tracer.start_span("tools/call echo", attributes=CALL)
    store.close()
    span.end()
    tracer.start_span("tools/call echo", attributes=CALL).end()

    assert store.calls() == store.running() == []


def test_a_running_call_says_how_far_it_is(store: SpanStore, tracer: Tracer) -> None:
    span = tracer.start_span("tools/call echo", attributes=CALL)
    assert [(call["progress"], call["total"]) for call in store.running()] == [(None, None)]
    span.set_attributes({"gaia.mcp.progress": 3.0, "gaia.mcp.progress.total": 10.0})
    assert [(call["progress"], call["total"]) for call in store.running()] == [(3.0, 10.0)]
    span.end()

    assert [(call["progress"], call["total"]) for call in store.calls()] == [(None, None)]


@pytest.fixture
def logs() -> Iterator[LogStore]:
    logs = LogStore()
    logs.attach(logging.DEBUG)
    yield logs
    logs.detach()


def test_events_of_a_server_without_a_trace_are_found_by_their_time(logs: LogStore) -> None:
    logger = get_logger("gaia.test")
    logger.debug("seen", server="it", text="x" * 10_000)
    logger.debug("not_seen", server="other")
    (found,) = logs.of_traces({"1"}, "it", 0, None)

    assert (found["event"], found["level"], found["logger"]) == ("seen", "debug", "gaia.test")
    assert len(found["fields"]["text"]) < 5000
    assert logs.of_traces({"1"}, "it", 0, 1) == []


def test_those_of_a_trace_are_found_by_it(logs: LogStore) -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("here") as span:
        get_logger("gaia.test").info("seen", server="other")
    trace_id = format(span.get_span_context().trace_id, "032x")

    assert [line["event"] for line in logs.of_traces({trace_id}, "it", 0, 1)] == ["seen"]
    assert logs.of_traces({"other"}, "other", 0, None) == []


def test_plain_records_are_kept_too(logs: LogStore) -> None:
    try:
        raise ValueError("oh")
    except ValueError:
        logging.getLogger("gaia.test").exception("it %s", "broke")
    with logs._kept:
        (kept,) = logs._records

    assert kept["event"] == "it broke"
    assert "ValueError: oh" in kept["fields"]["exception"]


def test_they_are_bounded_in_bytes(logs: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MAX_LOG_BYTES", 100_000)
    logger = get_logger("gaia.test")
    for number in range(100):
        logger.debug("long", server="it", number=number, text="x" * 4000)
    kept = logs.of_traces(set(), "it", 0, None)

    assert 10 < len(kept) < 25
    assert kept[-1]["fields"]["number"] == "99"


def test_the_level_is_put_back() -> None:
    logger = logging.getLogger("gaia")
    before, logs = logger.level, LogStore()
    logs.attach(logging.DEBUG)
    assert logger.level == logging.DEBUG
    logs.detach()

    assert logger.level == before
    assert logs not in logger.handlers
