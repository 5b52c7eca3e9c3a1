"""Exceptions as text, which is made whatever their own code does."""

from __future__ import annotations

from gaia.runtime.exception_text import exception_text, traceback_text
from tests.unspeakable import Unspeakable


def test_a_traceback_has_nothing_that_a_terminal_acts_on() -> None:
    try:
        raise ValueError("\x1b[31mred")
    except ValueError as error:
        trace = traceback_text(error)
    assert trace.endswith("ValueError: red")
    assert "Traceback" in trace


def test_an_exception_is_shown_as_python_does() -> None:
    assert exception_text(ValueError("no")) == "ValueError('no')"


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    assert "Unspeakable" in exception_text(Unspeakable())
    assert "Unspeakable" in traceback_text(Unspeakable())
