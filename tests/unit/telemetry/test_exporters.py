"""The file and the lines that spans go to, apart from the SDK's setup."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import StatusCode

from gaia.telemetry.exporters import JsonLinesExporter, readable_line
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

    def test_a_folder_that_does_not_exist_is_told_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="No such file"):
            JsonLinesExporter(tmp_path / "nowhere" / "spans.jsonl")


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
