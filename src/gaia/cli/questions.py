"""Questions that a server asks while a command waits for it. The person at the terminal answers, or they are declined.

Only the main thread reads from the terminal, because Ctrl-C interrupts only that thread. So the request to the server
runs on another thread.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from gaia.cli import terminal, time_limit
from gaia.cli.arguments import json_or_string
from gaia.cli.options import Options
from gaia.mcp.errors import CallCancelled, CallTimeout
from gaia.runtime.locks import TimedQueue, get_within
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import ElicitationAnswer, ElicitationRequest

T = TypeVar("T")

_ANSWER_SECONDS = 600.0
"""Seconds that a person may take in all. The client lets a server wait as long for an answer."""

_END_SECONDS = 5.0

_Question = tuple["ElicitationRequest", "Future[ElicitationAnswer]"]


class Questions:
    def __init__(self, options: Options) -> None:
        self.are_asked = not options.json and terminal.can_ask()
        self.timed_out = False
        """Whether `run` ended the request because its time had passed."""
        self._waiting: TimedQueue[_Question | None] = TimedQueue()
        """Questions for the main thread, at most four at once (`ServerRequests`). None: the request has ended."""
        self._running = False
        self._seconds = 0.0
        self._deadline = 0.0
        """A reading of the monotonic clock. Any thread may extend it."""

    def on_elicitation(self, request: ElicitationRequest) -> ElicitationAnswer:
        """Answer a server's question. The client calls this on its own thread."""
        if not self.are_asked:
            why = "was declined, because no person at a terminal can be asked"
            words = f"The server {request.server!r} asked a question, which {why}: {one_line(request.message)}"
            terminal.note(words, "yellow")
            return request.decline()
        answer: Future[ElicitationAnswer] = Future()
        self._waiting.put((request, answer))
        # The main thread clears `_running` and then empties the queue, so one of the two threads answers the question.
        if not self._running:
            self._leave_unanswered()
        return answer.result(_ANSWER_SECONDS)

    def progressed(self) -> None:
        """Restart the request's time limit, because the server has reported progress."""
        self._deadline = time.monotonic() + self._seconds

    def run(
        self,
        request: Callable[[float | None], T],
        *,
        limit: float,
        quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> T:
        """The result of ``request(timeout)``, during which the server may ask questions.

        Without a person to ask, this thread calls `request` with the time that --timeout leaves. Otherwise the request
        has that time, or `limit` seconds without --timeout, which start again after each question. `quiet` is entered
        while the person is asked. Raises the errors of the request, and CallTimeout if its time has passed.
        """
        timeout = time_limit.remaining()
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
        return f"it was not answered within {self._seconds:g} s"

    def _serve(self, quiet: Callable[[], contextlib.AbstractContextManager[object]]) -> bool:
        """Ask the person until the request ends. False if its time passes first."""
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
                # Runs after Ctrl-C too.
                if not answer.done():
                    answer.set_result(request.cancel())
            self.progressed()

    def _leave_unanswered(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                question = self._waiting.get_nowait()
                if question is not None:
                    question[1].set_result(question[0].cancel())


_MAX_MESSAGE = 4000

_MAX_NAMED, _MAX_TEXT = 20, 300
"""Fields that are named before the form, and characters of a description, a title or a default."""

_MAX_CHOICES = 50

_TRUTH = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

_Choices = list[tuple[Any, str]]


def fill_in(request: ElicitationRequest) -> ElicitationAnswer:
    """Ask the person at the terminal whether to answer, then field by field.

    A field with an invalid value is asked again. The end of the input (Ctrl-D) within the form means "cancel".
    """
    from gaia.runtime.untrusted_text import escaped

    terminal.note(f"The server {request.server!r} asks:", "bold")
    message = escaped(request.message)
    for line in (message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…").splitlines():
        _show(line)
    properties, required = (request.requested_schema.get(key) for key in ("properties", "required"))
    fields = properties if isinstance(properties, Mapping) else {}
    named = [_shortened(name) for name in list(fields)[:_MAX_NAMED]]
    if len(fields) > _MAX_NAMED:
        named.append(f"and {len(fields) - _MAX_NAMED} more")
    wanted = f" It wants to know: {', '.join(named)}." if fields else ""
    if not terminal.yes(f"Answer it?{wanted}"):
        return request.decline()
    while True:
        content: dict[str, Any] = {}
        for name, field in fields.items():
            known = field if isinstance(field, Mapping) else {}
            try:
                value = _ask(name, known, required=isinstance(required, list) and name in required)
            except EOFError:
                return request.cancel()
            if value is not None:
                content[name] = value
        try:
            return request.accept(content)
        except ValueError as error:
            # The form as a whole is invalid.
            terminal.note(str(error), "red")


def _ask(name: str, field: Mapping[str, Any], *, required: bool) -> Any:
    """The value that the person typed; None for an omitted field. Raises EOFError at the end of the input."""
    choices = _choices(field)
    if description := field.get("description"):
        _show(_shortened(description), "dim")
    for number, (_, title) in enumerate(choices[:_MAX_CHOICES], 1):
        _show(f"{number}. {_shortened(title)}")
    if len(choices) > _MAX_CHOICES:
        _show(f"… and {len(choices) - _MAX_CHOICES} more")
    while True:
        typed = terminal.ask(f"{_label(name, field, required=required)}:")
        if typed is None:
            raise EOFError
        try:
            if typed.strip():
                return _value(typed, field, choices)
            if "default" in field or not required:
                # `accept` fills in the default.
                return None
            terminal.note("It has to be answered; Ctrl-D leaves the form.", "red")
        except ValueError as error:
            terminal.note(str(error), "red")


def _label(name: str, field: Mapping[str, Any], *, required: bool) -> str:
    title, kind, form = field.get("title"), field.get("type", "string"), field.get("format")
    shown = _shortened(name)
    if isinstance(title, str) and title != name:
        shown = f"{_shortened(title)} ({shown})"
    facts = [_shortened(kind) + (f", {_shortened(form)}" if isinstance(form, str) else "")]
    if kind == "array":
        facts.append("several with commas between them")
    if kind == "boolean":
        facts.append("y or n")
    if "default" in field:
        facts.append(f"Enter for {_shortened(json.dumps(field['default'], ensure_ascii=False))}")
    elif not required:
        facts.append("may be left empty")
    return f"    {shown} [{'; '.join(facts)}]"


def _show(line: str, style: str = "") -> None:
    from rich.padding import Padding

    terminal.show(Padding(terminal.text(line, style), (0, 0, 0, 4), expand=False), console=terminal.err())


def _shortened(text: object) -> str:
    line = one_line(text)
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"


def _choices(field: Mapping[str, Any]) -> _Choices:
    """``enum`` with ``enumNames``, or ``oneOf`` (``anyOf``) with ``const`` and ``title``."""
    items = field.get("items") if field.get("type") == "array" else field
    if not isinstance(items, Mapping):
        return []
    if isinstance(values := items.get("enum"), list):
        names = items.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        return [(value, str(title)) for value, title in zip(values, titles, strict=True)]
    options = items.get("oneOf", items.get("anyOf"))
    known = [option for option in options if isinstance(option, Mapping)] if isinstance(options, list) else []
    return [(option["const"], str(option.get("title", option["const"]))) for option in known if "const" in option]


def _value(typed: str, field: Mapping[str, Any], choices: _Choices) -> Any:
    from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable

    kind = field.get("type", "string")
    if kind == "array":
        value: Any = [_one(word.strip(), "string", choices) for word in typed.split(",") if word.strip()]
    else:
        value = _one(typed if field.get("type") == "string" else typed.strip(), kind, choices)
    try:
        problems = JsonSchema(dict(field)).problems(value)
    except SchemaUnusable:
        # The server checks the value too.
        problems = []
    if problems:
        raise ValueError("; ".join(problems))
    return value


def _one(word: str, kind: object, choices: _Choices) -> Any:
    """The value for a word: a choice by its value, title or number in the list, or a value of this type."""
    if choices:
        word = word.strip()
        chosen = [value for value, _ in choices if word == str(value)]
        chosen += [value for value, title in choices if word.casefold() == title.casefold()]
        if word.isascii() and word.isdecimal() and 1 <= int(word[:9]) <= len(choices):
            chosen.append(choices[int(word[:9]) - 1][0])
        if not chosen:
            raise ValueError(f"{word!r} is not one of the choices")
        return chosen[0]
    if kind == "string":
        return word
    if kind == "boolean":
        if (truth := _TRUTH.get(word.casefold())) is None:
            raise ValueError(f"{word!r} is neither yes nor no")
        return truth
    value = json_or_string(word)
    if kind in ("integer", "number") and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"{word!r} is no number")
    return value
