"""The file and the lines that spans go to, apart from the SDK's setup."""

import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, Tracer, set_span_in_context

from gaia.telemetry import exporters
from gaia.telemetry.exporters import JsonLinesExporter, TraceTree, readable_line
from tests.tracing import Tracing


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spans.jsonl"


@pytest.fixture
def exporter(file: Path) -> Iterator[JsonLinesExporter]:
    exporter = JsonLinesExporter(file)
    yield exporter
    exporter.shutdown()


@pytest.fixture
def span() -> ReadableSpan:
    span = TracerProvider().get_tracer("test").start_span("tools/call echo", attributes={"text": "one\ntwo"})
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


class TestJsonLinesExporter:
    def test_what_is_in_the_file_stays(self, file: Path, exporter: JsonLinesExporter, span: ReadableSpan) -> None:
        other = JsonLinesExporter(file)
        assert other.export([span, span]) is SpanExportResult.SUCCESS
        assert exporter.export([span]) is SpanExportResult.SUCCESS
        other.shutdown()
        assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["tools/call echo"] * 3

    def test_lines_of_many_threads_are_whole(self, file: Path, exporter: JsonLinesExporter, span: ReadableSpan) -> None:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: exporter.export([span]), range(200)))
        assert set(results) == {SpanExportResult.SUCCESS}
        lines = file.read_text().splitlines()
        assert len(lines) == 200
        assert {json.loads(line)["attributes"]["text"] for line in lines} == {"one\ntwo"}

    def test_a_text_that_is_no_unicode_is_written_all_the_same(self, file: Path, exporter: JsonLinesExporter) -> None:
        span = TracerProvider().get_tracer("test").start_span("half \ud800")
        span.end()
        assert isinstance(span, ReadableSpan)
        assert exporter.export([span]) is SpanExportResult.SUCCESS
        assert json.loads(file.read_text())["name"].startswith("half ")

    def test_a_full_disk_is_told_and_raises_nothing(
        self, exporter: JsonLinesExporter, span: ReadableSpan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            assert exporter.export([span]) is SpanExportResult.FAILURE
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda _, lines: len(lines) - 1)
            assert exporter.export([span]) is SpanExportResult.FAILURE
        assert exporter.export([span]) is SpanExportResult.SUCCESS

    def test_after_its_end_it_takes_nothing(self, file: Path, exporter: JsonLinesExporter, span: ReadableSpan) -> None:
        exporter.shutdown()
        exporter.shutdown()
        assert exporter.export([span]) is SpanExportResult.FAILURE
        assert file.read_text() == ""
        with pytest.raises(OSError, match="No such file"):
            JsonLinesExporter(file.parent / "nowhere" / "spans.jsonl")


class TestReadableLine:
    def test_it_is_one_line_whatever_the_attributes_are(self, span: ReadableSpan) -> None:
        line = readable_line(span)
        assert line.startswith("span tools/call echo INTERNAL ")
        assert line.endswith("text='one\\ntwo'\n")
        assert line.count("\n") == 1

    def test_no_terminal_acts_on_it(self, tracing: Tracing) -> None:
        tracer = tracing.provider.get_tracer("test")
        with tracer.start_as_current_span(
            "a\x1b[2J", attributes={"b\u202e": "c\x9b1m", "d": ["e\x1b]0;f\x07"]}
        ) as span:
            span.add_event("g\x1b[8m\r")
            span.set_status(StatusCode.ERROR, "h\u2800\x1b[5m")
        line = readable_line(tracing.only("a\x1b[2J"))
        assert all(character.isprintable() for character in line.removesuffix("\n"))
        assert "span a\\u{001b}[2J" in line
        assert "[g\\u{001b}[8m\\u{000d}]" in line

    def test_it_names_the_parent_the_failure_and_the_events(self, tracing: Tracing) -> None:
        tracer = tracing.provider.get_tracer("test")
        with tracer.start_as_current_span("parent") as parent, tracer.start_as_current_span("child") as child:
            child.add_event("requeued")
            child.set_status(StatusCode.ERROR, "first\nsecond")
        line = readable_line(tracing.only("child"))
        assert "ERROR first\\nsecond" in line
        assert f"trace={parent.get_span_context().trace_id:032x}" in line
        assert f"parent={parent.get_span_context().span_id:016x}" in line
        assert line.endswith("[requeued]\n")
        assert "parent=" not in readable_line(tracing.only("parent"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def tracer(out: io.StringIO) -> Tracer:
    """Whose spans are written to `out`."""
    return traced(out)[0]


def traced(out: io.StringIO) -> tuple[Tracer, TraceTree]:
    provider, tree = TracerProvider(), TraceTree(out)
    provider.add_span_processor(tree)
    return provider.get_tracer("test"), tree


def names(out: io.StringIO) -> list[str]:
    """Each line up to the kind of its span."""
    return [line.partition(" INTERNAL")[0] for line in out.getvalue().splitlines()]


def test_each_span_stands_below_the_one_that_it_is_part_of_even_if_it_ends_later(
    out: io.StringIO, tracer: Tracer
) -> None:
    with tracer.start_as_current_span("root"):
        with tracer.start_as_current_span("first"), tracer.start_as_current_span("deep"):
            pass
        with tracer.start_as_current_span("last"):
            late = tracer.start_span("late")
    assert out.getvalue() == ""
    late.end()
    assert names(out) == ["span root", "├─ span first", "│  └─ span deep", "└─ span last", "   └─ span late"]
    assert out.getvalue().count("trace=") == 1
    assert "parent=" not in out.getvalue()


def test_parts_of_a_trace_that_began_elsewhere_name_their_parent(out: io.StringIO, tracer: Tracer) -> None:
    elsewhere = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with tracer.start_as_current_span("here", set_span_in_context(NonRecordingSpan(elsewhere))):
        pass
    assert f"parent={2:016x}" in out.getvalue()


def test_spans_may_be_nested_more_deeply_than_functions(out: io.StringIO, tracer: Tracer) -> None:
    spans = [tracer.start_span("s0")]
    for number in range(1, 900):
        spans.append(tracer.start_span(f"s{number}", set_span_in_context(spans[-1])))
    for span in reversed(spans):
        span.end()

    assert len(out.getvalue().splitlines()) == 900


def test_what_has_ended_is_written_by_a_flush_and_at_the_end(out: io.StringIO) -> None:
    tracer, tree = traced(out)
    with tracer.start_as_current_span("root"):
        tracer.start_span("first").end()
        tree.force_flush()
        assert names(out) == ["span first"]
        tracer.start_span("second").end()
        tree.shutdown()
        assert names(out)[1:] == ["span second"]


def test_a_trace_that_completes_during_a_flush_is_written_once() -> None:
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            if "first" in text:
                other.end()
            return super().write(text)

    out = Slow()
    tracer, tree = traced(out)
    one, other = tracer.start_span("one", Context()), tracer.start_span("other", Context())
    tracer.start_span("first", set_span_in_context(one)).end()
    tracer.start_span("second", set_span_in_context(other)).end()
    tree.force_flush()
    one.end()
    assert sorted(names(out)) == ["span first", "span one", "span other", "span second"]


def test_long_and_many_traces_are_written_before_they_are_complete(
    out: io.StringIO, tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "_MAX_SPANS", 3)
    monkeypatch.setattr(exporters, "_MAX_TRACES", 2)
    with tracer.start_as_current_span("root"):
        for _ in range(3):
            tracer.start_span("part").end()
        assert names(out) == ["span part"] * 3
        tracer.start_span("fourth").end()
        others = [tracer.start_span("other", set_span_in_context(NonRecordingSpan(SpanContext(0, 0, False))))]
        others.append(tracer.start_span("another", set_span_in_context(NonRecordingSpan(SpanContext(0, 0, False)))))
        assert names(out)[3:] == ["span fourth"]
    for other in others:
        other.end()

    assert sorted(names(out)[4:]) == ["span another", "span other", "span root"]


def test_long_lines_are_folded_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = {}
    for out in (io.StringIO(), Terminal()):
        tracer, _ = traced(out)
        with tracer.start_as_current_span("root"), tracer.start_as_current_span("part", attributes={"a": "word " * 30}):
            pass
        shown[out.isatty()] = out.getvalue().splitlines()

    assert len(shown[False]) == 2
    assert max(map(len, shown[True])) <= 60
    assert shown[True][1].startswith("│    ")
    assert "".join(shown[True]).count("word") == 30


def test_a_stream_of_few_characters_gets_plain_lines() -> None:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, "ascii")
    tracer, _ = traced(out)  # type: ignore[arg-type]  # a stream of text all the same
    with tracer.start_as_current_span("root"), tracer.start_as_current_span("part"):
        pass
    assert b"\n`- span part" in data.getvalue()


def test_a_stream_that_was_closed_disturbs_nothing(out: io.StringIO, tracer: Tracer) -> None:
    out.close()
    with tracer.start_as_current_span("root"):
        pass
