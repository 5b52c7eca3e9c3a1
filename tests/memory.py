"""How much memory Python takes for something."""

import contextlib
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Memory:
    """In bytes; known when the block has been left."""

    held: int = 0
    """What was taken in the block and not given back before its end."""
    peak: int = 0


@contextlib.contextmanager
def measured_memory() -> Iterator[Memory]:
    """Measure what the block under a ``with`` takes."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
        memory.held, memory.peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
