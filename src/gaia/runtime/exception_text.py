"""Exceptions of the application as text. Its classes may have a ``__repr__`` or ``__str__`` that raises as well."""

from __future__ import annotations

import traceback

from gaia.runtime.untrusted_text import clean


def exception_text(error: BaseException) -> str:
    """`repr` of an exception, for log events and error messages. Never raises."""
    try:
        return repr(error)
    except BaseException:  # noqa: BLE001 - code of the application may raise anything
        return f"{type(error).__name__}, which cannot be shown"


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception, for the field ``exception`` of a log event. Never raises."""
    try:
        return clean("".join(traceback.format_exception(error))).rstrip()
    except BaseException:  # noqa: BLE001 - as above
        return f"{type(error).__name__}, whose traceback cannot be shown"
