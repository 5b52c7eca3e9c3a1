"""What is on standard output and no message: counted, and shown without secrets."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.rpc.unparsed_output import SAMPLE_LENGTH, UnparsedCounter, UnparsedOutput

SECRET = "hunter2-hunter2"


@pytest.fixture
def observer() -> Mock:
    return Mock(spec=Observer)


@pytest.fixture
def counter(observer: Mock) -> UnparsedCounter:
    return UnparsedCounter("test", observer, lambda text: text.replace(SECRET, "***"))


def test_noise_of_several_connections_adds_up() -> None:
    assert UnparsedOutput(1, 10, "a").plus(UnparsedOutput(2, 20, "b")) == UnparsedOutput(3, 30, "b")
    assert UnparsedOutput(1, 10, "a").plus(UnparsedOutput()) == UnparsedOutput(1, 10, "a")


def test_the_whole_line_counts_and_its_beginning_is_shown(counter: UnparsedCounter, observer: Mock) -> None:
    counter.count(300_000_000, b"begin")
    counter.count(7, b"\xffsecond")
    assert counter.total == UnparsedOutput(2, 300_000_007, "\ufffdsecond")
    assert [told.args for told in observer.noise_received.call_args_list] == [(300_000_000,), (7,)]


def test_a_total_that_another_thread_has_read_does_not_change(counter: UnparsedCounter) -> None:
    before = counter.total
    counter.count(3, b"abc")
    assert before == UnparsedOutput()


def test_only_the_first_line_is_logged(counter: UnparsedCounter, caplog: pytest.LogCaptureFixture) -> None:
    counter.count(len(SECRET), SECRET.encode())
    counter.count(6, b"second")
    assert [record.getMessage() for record in caplog.records] == ["noise_on_stdout server='test' sample='***'"]


@pytest.mark.parametrize("before", [0, SAMPLE_LENGTH - 5, SAMPLE_LENGTH, 16_000])
def test_a_secret_is_masked_before_the_sample_is_cut(counter: UnparsedCounter, before: int) -> None:
    line = b"x" * before + SECRET.encode() + b"y" * 500
    counter.count(len(line), line)
    assert len(counter.total.last) == SAMPLE_LENGTH
    assert "hunter" not in counter.total.last


def test_no_more_of_an_endless_line_is_searched_than_a_sample_needs(observer: Mock) -> None:
    searched: list[int] = []

    def redact(text: str) -> str:
        searched.append(len(text))
        return text

    UnparsedCounter("test", observer, redact).count(10_000_000, b"x" * 10_000_000)
    assert searched == [16 * 1024]
