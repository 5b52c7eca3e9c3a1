"""Logs of a service whose reader may not read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from gaia.cli.service_log import HandedOver, log_without_waiting
from tests.waiting import PATIENCE

LINE = "x" * 1_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(writing)
    os.close(reading)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("gaia", logging.WARNING, "", 1, text, None, None)


def test_nothing_waits_for_a_reader_and_nothing_is_lost_that_fits(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = HandedOver(writing)
    for _ in range(200):
        handler.handle(record(LINE))
    assert not handler.wait(0.01), "the pipe takes less"
    assert handler.lock is None, "the end of the process would wait for it"
    missing = 200 * (len(LINE) + 1)
    while missing:
        missing -= len(os.read(reading, missing))
    handler.handle(record("last"))
    assert handler.wait(PATIENCE)
    assert os.read(reading, 100) == b"last\n"


def test_a_reader_that_has_gone_costs_nothing_else() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = HandedOver(writing)
    handler.handle(record(LINE))
    assert handler.wait(PATIENCE)
    os.close(writing)


def test_a_standard_error_that_was_replaced_is_left_alone() -> None:
    before = list(logging.root.handlers)
    log_without_waiting()
    assert logging.root.handlers == before
