"""Two operations that other threads could run at the same moment, in every order that matters.

Code without locks is right or wrong by the order of single steps, and threads that merely race hardly ever meet in the
wrong one. Here the second operation takes place as a whole between two bytecode instructions of the first, once at each
place: what a switch to another thread, and back, could do.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


def interleavings(
    make: Callable[[], tuple[Callable[[], First], Callable[[], Second]]], *modules: ModuleType
) -> Iterator[tuple[First, Second]]:
    """Let `make` prepare both operations anew for each place; yields what they returned.

    Places are those in the code of `modules`. The first operation must not hold a lock that the second waits for.
    """
    files = {module.__file__ for module in modules}
    for place in itertools.count():
        first, second = make()
        switch = _Switch(second, place, files)
        before = sys.gettrace()
        # Python 3.12 traces instructions only if some frame has asked for it before tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(switch)
        try:
            first_outcome = first()
        finally:
            sys.settrace(before)
        has_happened = switch.has_happened
        if not has_happened:
            switch.happen()
        yield first_outcome, switch.outcome
        if not has_happened:
            assert place, "none of the code that was run is in the modules"
            return


class _Switch:
    """A trace function that calls another operation at one of the instructions."""

    def __init__(self, operation: Callable[[], Any], place: int, files: set[str | None]) -> None:
        self.has_happened = False
        self.outcome: Any = None
        self._operation = operation
        self._place = place
        self._files = files

    def __call__(self, frame: FrameType, event: str, _argument: object) -> "_Switch | None":
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.has_happened:
            if self._place == 0:
                self.happen()
            self._place -= 1
        return self

    def happen(self) -> None:
        self.has_happened = True
        self.outcome = self._operation()
