"""How much memory a decoded value takes: what queues and caches with a bound in bytes count."""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def value_size(value: Any) -> int:
    """Bytes that a JSON value, or a struct of such values, takes as Python objects, roughly.

    One that occurs twice counts twice. Takes as long as there are objects, and does not look at the text of strings.
    """
    size = 0
    open_values = [value]
    while open_values:
        one = open_values.pop()
        size += sys.getsizeof(one)
        if isinstance(one, dict):
            open_values.extend(one)
            open_values.extend(one.values())
        elif isinstance(one, list | tuple):
            open_values.extend(one)
        elif isinstance(one, msgspec.Struct):
            open_values.extend(msgspec.structs.astuple(one))
    return size
