"""An exception of an application whose own code is broken."""

from __future__ import annotations

from typing import NoReturn


class Unspeakable(Exception):
    """It can be shown neither by `repr` nor by `str`."""

    def __repr__(self) -> NoReturn:
        raise ZeroDivisionError

    __str__ = __repr__
