"""What a signal handler does, at every line of an operation that it can interrupt.

The interpreter runs a handler in the main thread, between two bytecode instructions of whatever that thread is doing;
a finalizer that the garbage collector calls may come in between in any thread. Here the handler is called by a trace
function, at the nth line of our code that the operation runs through, so each place has its turn.
"""

import dis
import faulthandler
import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gaia
from tests.waiting import PATIENCE

_OURS = str(Path(gaia.__file__).parent)
_LOCKS = threading.__file__
"""Events and starts of threads have locks of their own, which a handler may find taken."""


class Interruption:
    """One operation, with `handler` called once within it, in its thread; see `places`."""

    def __init__(
        self,
        operation: Callable[[], object],
        handler: Callable[[], object],
        place: int,
        *,
        files: tuple[str, ...] = (_OURS, _LOCKS),
    ) -> None:
        """Places are the lines of `files`, which are beginnings of paths. The handler must not raise.

        An exception of a trace function comes at places where no signal handler runs.
        """
        self.happened = False
        """Whether the operation has as many lines as that."""
        self.where = ""
        self.error: BaseException | None = None
        """What the operation raised."""
        self._operation = operation
        self._handler = handler
        self._left = place
        self._files = files

    def run(self) -> None:
        """Raises AssertionError if the operation does not end."""
        thread = threading.Thread(target=self._run, name="interrupted", daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"it hangs when it is interrupted at {self.where}")

    def _run(self) -> None:
        sys.settrace(self._trace)
        try:
            self._operation()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> "Callable[..., Any] | None":
        file = frame.f_code.co_filename
        if self.happened or not file.startswith(self._files):
            return None
        if event == "line":
            if self._left == 0:
                self.happened = True
                self.where = f"{file}:{frame.f_lineno}"
                self._handler()
            self._left -= 1
        return self._trace


def places(interrupt: Callable[[int], Interruption], step: int = 1, first: int = 0) -> Iterator[Interruption]:
    """Interrupt an operation at its line number `first`, and at every `step`-th after that, until it has no more.

    ``interrupt(place)`` prepares the operation anew. Yields each interruption after it has run.
    """
    place = first
    while True:
        interruption = interrupt(place)
        interruption.run()
        if not interruption.happened:
            assert place, "none of the code that was run is ours"
            return
        yield interruption
        place += step


class Raised(BaseException):
    """What a signal handler raises, see `raise_within`."""


def raise_within(operation: Callable[[], object], place: int, files: tuple[str, ...]) -> str:
    """Run an operation in this thread, with an exception right after its call number `place`; returns where that was.

    Those are the places where the interpreter runs signal handlers, besides the ends of loops. Only calls are counted
    that are made by `files`: ends of paths within the package, or whole paths of others. Empty if there are fewer.
    """
    left, where = place, ""

    def trace(frame: FrameType, event: str, _argument: Any) -> "Callable[..., Any] | None":
        nonlocal left, where
        code = frame.f_code
        if where or not code.co_filename.startswith((_OURS, *files)) or code.co_name == "__del__":
            return None
        if not code.co_filename.endswith(files):
            return trace if event == "call" else None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in _after_calls(code):
            if left == 0:
                where = f"{code.co_filename}:{frame.f_lineno}"
                raise Raised
            left -= 1
        return trace

    # Python 3.12 tells a tracer of opcodes only if some frame has asked for them before.
    frame = inspect.currentframe()
    assert frame is not None
    frame.f_trace_opcodes = True
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except Raised:
        pass
    finally:
        sys.settrace(before)
    return where


@functools.cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """The instructions before which the interpreter may run signal handlers."""
    instructions = list(dis.get_instructions(code))
    return frozenset(
        after.offset
        for before, after in itertools.pairwise(instructions)
        if before.opname in ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW")
    )
