"""The end of a server's stderr, kept small and without secrets."""

from __future__ import annotations

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.transports.stdio_channel import StderrTail
from gaia.runtime.redaction import Redactor
from tests.memory import measured_memory

SECRET = "hunter2-hunter2"
WINDOW = 16 * 1024


def tail_of(*chunks: bytes, secret: str = SECRET) -> StderrTail:
    tail = StderrTail("test", Redactor([secret]))
    for chunk in chunks:
        tail.feed(chunk)
    return tail


class TestText:
    def test_it_is_the_last_twenty_lines(self) -> None:
        lines = [f"line {number}" for number in range(100)]
        assert tail_of("\n".join(lines).encode()).text() == "\n".join(lines[-20:])

    @given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
    def test_it_does_not_matter_how_it_came(self, stream: bytes, positions: list[int]) -> None:
        edges = [0, *sorted(positions), len(stream)]
        pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
        assert tail_of(*pieces).text() == tail_of(stream).text()

    def test_of_one_endless_line_it_is_the_end(self) -> None:
        text = tail_of(*[b"x" * 1000] * 100, b"end").text()
        assert text.endswith("xend")
        assert WINDOW - 100 <= len(text) <= WINDOW + 1000

    def test_it_contains_nothing_that_a_terminal_would_act_on(self) -> None:
        assert tail_of(b"\x1b[31mred\x1b[0m\r\n\x07bell\ttab \xff").text() == "red\nbell\ttab \ufffd"

    def test_a_flood_takes_no_memory(self) -> None:
        assert not logging.getLogger("gaia").isEnabledFor(logging.DEBUG)
        tail = tail_of()
        chunk = b"x" * 65536
        with measured_memory() as memory:
            for _ in range(200):
                tail.feed(chunk)
        assert memory.peak < 4 * 65536


class TestSecrets:
    def test_they_are_masked_even_if_they_came_in_pieces(self) -> None:
        assert tail_of(b"token hunter2", b"-hunter2 refused").text() == "token *** refused"

    def test_they_are_masked_even_if_they_are_coloured(self) -> None:
        assert tail_of(b"token hunter2\x1b[0m-hunter2 refused").text() == "token *** refused"

    @given(st.integers(0, 3 * len(SECRET)), st.sampled_from([1, 7, 1000, 100_000]))
    def test_where_the_kept_part_begins_no_half_of_one_is_left(self, offset: int, chunk_size: int) -> None:
        stream = SECRET.encode() * 10 + b"x" * (WINDOW - 2 * len(SECRET) + offset)
        text = tail_of(*(stream[start : start + chunk_size] for start in range(0, len(stream), chunk_size))).text()
        assert not any(part in text for part in ("hunter", "unter2", "2-hunt"))


class TestLog:
    @pytest.fixture(autouse=True)
    def debug(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="gaia")

    def test_whole_lines_are_logged_with_secrets_masked(self, caplog: pytest.LogCaptureFixture) -> None:
        tail = tail_of(b"one\ntwo hunter2", b"-hunter2\nthree")
        assert [record.getMessage() for record in caplog.records] == [
            "server_stderr server='test' text='one'",
            "server_stderr server='test' text='two ***'",
        ]
        tail.finish()
        assert caplog.records[-1].getMessage().endswith("text='three'")
        tail.finish()
        assert len(caplog.records) == 3

    def test_a_line_without_end_is_logged_in_parts(self, caplog: pytest.LogCaptureFixture) -> None:
        tail_of(*[b"x" * 1000] * 20)
        assert len(caplog.records) == 1

    def test_nothing_is_kept_for_a_log_that_nobody_reads(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="gaia")
        tail = tail_of(b"no end")
        caplog.set_level(logging.DEBUG, logger="gaia")
        tail.finish()
        assert caplog.records == []
