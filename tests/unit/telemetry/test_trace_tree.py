"""Traces as trees, for terminals."""

import io

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, set_span_in_context

from gaia.telemetry import trace_tree
from gaia.telemetry.trace_tree import TraceTree


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def traced(out: io.StringIO) -> tuple[Tracer, TraceTree]:
    provider, tree = TracerProvider(), TraceTree(out)
    provider.add_span_processor(tree)
    return provider.get_tracer("test"), tree


def names(out: io.StringIO) -> list[str]:
    """Each line up to the kind of its span."""
    return [line.partition(" INTERNAL")[0] for line in out.getvalue().splitlines()]


def test_each_span_stands_below_the_one_that_it_is_part_of(out: io.StringIO) -> None:
    tracer, _ = traced(out)
    with tracer.start_as_current_span("root"):
        with tracer.start_as_current_span("first"), tracer.start_as_current_span("deep"):
            pass
        with tracer.start_as_current_span("last"), tracer.start_as_current_span("below"):
            assert out.getvalue() == ""

    assert names(out) == ["span root", "├─ span first", "│  └─ span deep", "└─ span last", "   └─ span below"]
    assert out.getvalue().count("trace=") == 1
    assert "parent=" not in out.getvalue()


def test_a_span_that_ends_after_its_parent_is_waited_for(out: io.StringIO) -> None:
    tracer, _ = traced(out)
    with tracer.start_as_current_span("root"):
        late = tracer.start_span("late")
    assert out.getvalue() == ""
    late.end()

    assert names(out) == ["span root", "└─ span late"]


def test_parts_of_a_trace_that_began_elsewhere_name_their_parent(out: io.StringIO) -> None:
    tracer, _ = traced(out)
    elsewhere = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with tracer.start_as_current_span("here", set_span_in_context(NonRecordingSpan(elsewhere))):
        pass

    assert f"parent={2:016x}" in out.getvalue()


def test_spans_may_be_nested_more_deeply_than_functions(out: io.StringIO) -> None:
    tracer, _ = traced(out)
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


def test_long_and_many_traces_are_written_before_they_are_complete(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_tree, "_MAX_SPANS", 3)
    monkeypatch.setattr(trace_tree, "_MAX_TRACES", 2)
    tracer, _ = traced(out)
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


def test_a_stream_that_was_closed_disturbs_nothing(out: io.StringIO) -> None:
    tracer, _ = traced(out)
    out.close()
    with tracer.start_as_current_span("root"):
        pass
