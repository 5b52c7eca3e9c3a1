"""Questions that a server asks while a command waits for it: the person at the terminal answers, or they are declined.

Only the main thread reads from the terminal, because only there Ctrl-C ends a question. So the request to the server
runs on a thread of its own meanwhile.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from gaia.cli import terminal
from gaia.cli.options import Options
from gaia.mcp.errors import CallCancelled, CallTimeout
from gaia.runtime.locks import TimedQueue, get_within
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import ElicitationAnswer, ElicitationRequest

T = TypeVar("T")

_ANSWER_SECONDS = 600.0
"""How long a person may take in all: as long as the client lets a server wait for an answer."""

_END_SECONDS = 5.0
"""How long the thread of a request that was cancelled may take to end."""

_Question = tuple["ElicitationRequest", "Future[ElicitationAnswer]"]


class Questions:
    """Answers the questions of one server for one command."""

    def __init__(self, options: Options) -> None:
        self.are_asked = not options.json and terminal.can_ask()
        """Whether there is a person to ask."""
        self.timed_out = False
        """Whether `run` has ended the request, because its time had passed."""
        self._waiting: TimedQueue[_Question | None] = TimedQueue()
        """Questions for the main thread, at most four at once (`ServerRequests`); None when the request has ended."""
        self._running = False
        """Whether the main thread takes questions."""
        self._seconds = 0.0
        self._deadline = 0.0
        """A reading of the monotonic clock. Any thread may set it back."""

    def on_elicitation(self, request: ElicitationRequest) -> ElicitationAnswer:
        """Answer a server; runs on a thread of the client."""
        if not self.are_asked:
            terminal.say(
                f"The server {request.server!r} asked a question, which was declined, because no person at a terminal "
                f"can be asked: {one_line(request.message)}",
                "yellow",
                console=terminal.err(),
            )
            return request.decline()
        answer: Future[ElicitationAnswer] = Future()
        self._waiting.put((request, answer))
        # The main thread clears it and then empties the queue. One of the two sees the other.
        if not self._running:
            self._leave_unanswered()
        return answer.result(_ANSWER_SECONDS)

    def progressed(self) -> None:
        """The server works on the request, whose time begins anew."""
        self._deadline = time.monotonic() + self._seconds

    def run(
        self,
        request: Callable[[float | None], T],
        *,
        timeout: float | None = None,
        limit: float,
        quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> T:
        """The result of ``request(timeout)``, which may make the server ask questions.

        Without a person to ask it is called in this thread. With one, it has `timeout`, or else `limit` seconds, which
        begin anew after each question. `quiet` is entered while the person is asked. Raises what the request raises,
        and CallTimeout if its time has passed.
        """
        if not self.are_asked:
            return request(timeout)
        from gaia.runtime.cancellation import CancelScope

        self._seconds = limit if timeout is None else timeout
        scope, outcome = CancelScope(), Future[T]()

        def perform() -> None:
            try:
                with scope.entered():
                    outcome.set_result(request(self._seconds + _ANSWER_SECONDS))
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                outcome.set_exception(error)
            finally:
                self._waiting.put(None)

        worker = threading.Thread(target=perform, name="gaia-request", daemon=True)
        self._running = True
        self.progressed()
        try:
            worker.start()
            self.timed_out = not self._serve(quiet)
        finally:
            self._running = False
            self._leave_unanswered()
            scope.cancel()
            worker.join(_END_SECONDS)
        try:
            return outcome.result(0)
        except (CallCancelled, TimeoutError) as error:
            if not self.timed_out:
                raise
            raise CallTimeout(self.late) from error

    @property
    def late(self) -> str:
        """What to say of a request that `run` has ended."""
        return f"it was not answered within {self._seconds:g} s"

    def _serve(self, quiet: Callable[[], contextlib.AbstractContextManager[object]]) -> bool:
        """Ask the person until the request has ended; False if its time has passed before."""
        from gaia.cli.forms import fill_in

        while True:
            try:
                question = get_within(self._waiting, self._deadline - time.monotonic())
            except queue.Empty:
                if time.monotonic() >= self._deadline:
                    return False
                continue
            if question is None:
                return True
            request, answer = question
            try:
                with quiet():
                    answer.set_result(fill_in(request))
            finally:
                # After Ctrl-C, too.
                if not answer.done():
                    answer.set_result(request.cancel())
            self.progressed()

    def _leave_unanswered(self) -> None:
        """Answer what waits with "cancel": the main thread takes no questions."""
        with contextlib.suppress(queue.Empty):
            while True:
                question = self._waiting.get_nowait()
                if question is not None:
                    question[1].set_result(question[0].cancel())
