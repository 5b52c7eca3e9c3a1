"""What is kept of log events, and how little of it."""

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from gaia.dashboard import stores
from gaia.dashboard.stores import LogStore
from gaia.runtime.log import get_logger


@pytest.fixture
def store() -> Iterator[LogStore]:
    store = LogStore()
    store.attach(logging.DEBUG)
    yield store
    store.detach()


def test_events_of_a_server_without_a_trace_are_found_by_their_time(store: LogStore) -> None:
    logger = get_logger("gaia.test")
    logger.debug("seen", server="it", text="x" * 10_000)
    logger.debug("not_seen", server="other")
    (found,) = store.of_traces({"1"}, "it", 0, None)

    assert (found["event"], found["level"], found["logger"]) == ("seen", "debug", "gaia.test")
    assert len(found["fields"]["text"]) < 5000
    assert store.of_traces({"1"}, "it", 0, 1) == []


def test_those_of_a_trace_are_found_by_it(store: LogStore) -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("here") as span:
        get_logger("gaia.test").info("seen", server="other")
    trace_id = format(span.get_span_context().trace_id, "032x")

    assert [line["event"] for line in store.of_traces({trace_id}, "it", 0, 1)] == ["seen"]
    assert store.of_traces({"other"}, "other", 0, None) == []


def test_plain_records_are_kept_too(store: LogStore) -> None:
    try:
        raise ValueError("oh")
    except ValueError:
        logging.getLogger("gaia.test").exception("it %s", "broke")
    with store._kept:
        (kept,) = store._records

    assert kept["event"] == "it broke"
    assert "ValueError: oh" in kept["fields"]["exception"]


def test_they_are_bounded_in_bytes(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MAX_LOG_BYTES", 100_000)
    logger = get_logger("gaia.test")
    for number in range(100):
        logger.debug("long", server="it", number=number, text="x" * 4000)
    kept = store.of_traces(set(), "it", 0, None)

    assert 10 < len(kept) < 25
    assert kept[-1]["fields"]["number"] == "99"


def test_the_level_is_put_back() -> None:
    logger = logging.getLogger("gaia")
    before, store = logger.level, LogStore()
    store.attach(logging.DEBUG)
    assert logger.level == logging.DEBUG
    store.detach()

    assert logger.level == before
    assert store not in logger.handlers
