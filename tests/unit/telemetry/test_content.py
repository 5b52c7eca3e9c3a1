"""What spans record of arguments and results, and what never gets into one."""

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gaia.mcp.client import MCPClient
from gaia.runtime.redaction import Redactor
from gaia.telemetry import content, masking
from gaia.telemetry.content import ContentPolicy, Recorded, default_mode, measured
from tests.unit.telemetry.suspicious_texts import SECRETS, TEXTS

Json = dict[str, Any]
T = TypeVar("T")
Connect = Callable[..., MCPClient]
FaultServer = Callable[..., Json]

SECRET = "hunter2-hunter2"
VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture(autouse=True)
def no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_hook", None)
    monkeypatch.delenv(VARIABLE, raising=False)


def redacted(value: Any) -> str:
    _, text = measured(Recorded("s", "t", "arguments", "redacted", value), lambda text: text.replace(SECRET, "***"))
    assert text is not None
    return text


class TestMode:
    @pytest.mark.parametrize(
        ("value", "mode"),
        [
            ("", "redacted"),
            ("true", "full"),
            ("TRUE", "full"),
            ("SPAN_ONLY", "full"),
            ("span_and_event", "full"),
            ("false", "off"),
            ("NO_CONTENT", "off"),
            ("EVENT_ONLY", "off"),
            ("whatever", "redacted"),
        ],
    )
    def test_by_default_it_is_what_the_variable_of_opentelemetry_says(
        self, monkeypatch: pytest.MonkeyPatch, value: str, mode: str
    ) -> None:
        monkeypatch.setenv(VARIABLE, value)
        assert default_mode() == ContentPolicy().mode_for("any") == mode

    def test_what_the_configuration_says_counts_more_and_of_patterns_the_first_that_matches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, "true")
        policy = ContentPolicy("off", {"read_secret": "off", "read_*": "full"})
        assert [policy.mode_for(tool) for tool in ("read_secret", "read_file", "write")] == ["off", "full", "off"]


class TestRedacted:
    def test_harmless_values_stay_as_they_are(self) -> None:
        value = {"city": "Bern", "days": 3, "exact": True, "nothing": None, "list": [1, "two"], "author": "Ada"}
        assert json.loads(redacted(value)) == value

    @pytest.mark.parametrize("value", ["x" * 100_000, ["x"] * 100_000, {str(n): n for n in range(100_000)}])
    def test_it_is_cut_at_four_kibibytes(self, value: Any) -> None:
        text = redacted(value)
        assert len(text) <= 4096
        assert "…" in text

    @pytest.mark.parametrize("value", ["\ud800", {"\ud800": ["\ud800"]}, 2**70, float(10**300)])
    def test_whatever_json_can_hold_can_be_recorded(self, value: Any) -> None:
        assert redacted(value)

    def test_what_is_nested_too_deeply_is_not_recorded(self) -> None:
        value: Any = []
        for _ in range(5_000):
            value = [value]
        assert measured(Recorded("s", "t", "result", "redacted", value), str) == (None, None)


@pytest.mark.parametrize(
    ("hook", "text", "is_logged"),
    [
        (lambda recorded: f"{recorded.server}/{recorded.tool}/{recorded.kind}", "s/t/result", False),
        (lambda _: None, None, False),
        (lambda _: 1 / 0, None, True),
    ],
    ids=["a text", "nothing", "one that raises"],
)
def test_a_hook_decides_what_is_recorded_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture, hook: Any, text: str | None, is_logged: bool
) -> None:
    content.set_content_hook(hook)
    assert measured(Recorded("s", "t", "result", "full", 1), str) == (1, text)
    assert ("content_not_recorded" in caplog.text) is is_logged


def test_nothing_is_rendered_for_a_trace_that_is_not_recorded(fault_server: FaultServer, connect: Connect) -> None:
    threads: list[str] = []
    content.set_content_hook(lambda _: threads.append(threading.current_thread().name))
    connect(fault_server()).call_tool("echo", {"text": "hi"})
    assert threads == []


KEYS = st.one_of(TEXTS, st.sampled_from(["data", "blob", "text", "x" * 60 + "author", "x" * 61 + "author"]))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(st.one_of(KEYS, st.integers(), st.floats(), st.booleans()), inner, max_size=2),
    ),
    max_leaves=6,
)


def unless_refused(encode: Callable[[], T]) -> T | None:
    try:
        return encode()
    except (TypeError, ValueError):
        return None


class TestPlainJson:
    """The text of plain JSON is taken as it is only where the copy without secrets would be the same text."""

    @given(value=VALUES)
    @example(value=["x" * 1000, *[1] * 500])
    @example(value=[1] * 511)
    @example(value=[1] * 2047)
    @example(value={"x" * 59 + "author": "Ada"})
    @example(value={"text": "line\\nhunter2-hunter2"})
    @example(value={"text": "\\\\n"})
    @example(value={"x": 1e22, "y": [5e-324, -0.0, float("nan")]})
    def test_it_is_what_masking_would_leave(self, value: Any) -> None:
        redact = Redactor(SECRETS)
        redacted = Recorded("s", "t", "arguments", "redacted", value)
        # Keys that are neither texts nor numbers are no JSON.
        copy = unless_refused(lambda: content._encode(masking.masked(value, redact)).decode())
        whole = unless_refused(lambda: content._encode(value))
        size = None if whole is None else len(whole)
        assert measured(redacted, redact) == (size, None if copy is None else content._cut(copy))
        assert measured(redacted._replace(mode="full"), str) == (size, None if whole is None else whole.decode())
        assert measured(redacted._replace(mode="off"), redact) == measured(redacted, None) == (size, None)

    @pytest.mark.parametrize(
        "value",
        [
            {"text": 'a line\nand "another"\t\\'},
            {"content": [{"type": "text", "text": "through the high wood; a monkey passed"}], "isError": False},
            {"city": "Z\u00fcrich", "temperature": 21.5, "list": [1, None, True, "\u6771\u4eac"]},
            {"text": "abcdefghi " * 300},
        ],
    )
    def test_what_is_ordinary_is_not_looked_at_closer(self, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(masking, "_Masking")
        assert json.loads(redacted(value)) == value
