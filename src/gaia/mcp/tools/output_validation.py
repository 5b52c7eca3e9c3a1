"""Checks results of tools: ``structuredContent`` against ``outputSchema`` ("Tools", "Output Schema").

A small result that fits a common schema passes at once, in the thread that has it. Any other check may take seconds, so
it is made on the server's own thread. A call waits for its check only if a wrong result makes the call fail.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Context, copy_context
from typing import Any

import orjson
from opentelemetry import context as contexts

from gaia.mcp.config.server_config import OutputMode
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.json_schema import CheckGivenUp, JsonSchema, SchemaUnusable
from gaia.mcp.protocol.quick_check import QuickCheck
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import DaemonPool, PoolExhausted

logger = get_logger(__name__)

_MAX_SCHEMAS = 1000

Check = Callable[[Mapping[str, Any]], InvalidResponse | None]
"""Logs the problems of a result; returns the error that the call fails with, or None. May take seconds."""

_MAX_RESULTS = 100
_MAX_BYTES = 4 * 1024 * 1024
_CHEAP_SECONDS = 0.05
_REST = 9
"""After a check of more than `_CHEAP_SECONDS`, the thread rests this many times as long."""

_IDLE_SECONDS = 1.0
_JOIN_SECONDS = 2.0


class OutputChecks:
    """Runs the checks of one server's results on a thread, which exists while there is work. Thread-safe.

    Results that are only logged are checked one at a time; results that arrive faster are skipped.
    """

    def __init__(self, server: str, threads: DaemonPool | None = None) -> None:
        self.threads = threads or DaemonPool(f"mcp-{server}-checks", 1, idle_seconds=_IDLE_SECONDS, is_engine=True)
        self._lock = reentrant_lock()
        """Guards the attributes below."""
        self._waiting: deque[tuple[OutputCheck, bytes]] = deque()
        self._size = 0
        self._is_running = False
        self._rests_until = 0.0
        """Monotonic seconds. Results that arrive earlier are skipped."""
        self._ends = 0

    def prepare(self, steps: Iterator[object]) -> None:
        """Run `steps` to its end. Checks that arrive meanwhile run between its steps."""
        ends = self._ends

        def step() -> None:
            for _ in steps:
                # With the lock: a step that begins after `end` would start a thread that `end` does not wait for.
                with self._lock:
                    if ends == self._ends:
                        self._begin(step)
                return

        self._begin(step)

    def add(self, check: OutputCheck, result: bytes) -> None:
        with self._lock:
            waiting = len(self._waiting)
            is_full = waiting >= _MAX_RESULTS or (waiting and self._size + len(result) > _MAX_BYTES)
            if is_full or time.monotonic() < self._rests_until:
                return
            self._waiting.append((check, result))
            self._size += len(result)
            begins, self._is_running = not self._is_running, True
        if begins and not self._begin(self._run):
            self._is_running = False

    def end(self) -> None:
        """End the thread after the waiting checks. Returns after two seconds at the latest."""
        with self._lock:
            self._ends += 1
        self.threads.drain(_JOIN_SECONDS)

    def _begin(self, task: Callable[[], object]) -> bool:
        try:
            self.threads.submit(task)
        except PoolExhausted:
            return False
        return True

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                check, result = task
                began = time.thread_time()
                # A result may hold numbers that JSON allows and this decoder does not. The caller gets the result
                # unchanged.
                with contextlib.suppress(ValueError, RecursionError):
                    check.problem(orjson.loads(result))
                self._spent(time.thread_time() - began)
        except BaseException:
            # The next result starts the thread again.
            self._is_running = False
            raise

    def _spent(self, seconds: float) -> None:
        if seconds > _CHEAP_SECONDS:
            with self._lock:
                self._rests_until = time.monotonic() + _REST * seconds
                self._waiting.clear()
                self._size = 0

    def _next(self) -> tuple[OutputCheck, bytes] | None:
        with self._lock:
            if not self._waiting:
                self._is_running = False
                return None
            check, result = self._waiting.popleft()
            self._size -= len(result)
            return check, result


class OutputCheck:
    """The check of one call's result. It logs in the context of the call, so the log belongs to the call's span."""

    __slots__ = ("_check", "_checks", "_context", "_quick", "_traced", "fails_call")

    def __init__(
        self,
        checks: OutputChecks,
        check: Check,
        quick: QuickCheck | None = None,
        traced: contexts.Context | None = None,
        *,
        fails_call: bool,
    ) -> None:
        """Made in the caller's thread, because it copies the context. `traced` has the call's span."""
        self._checks = checks
        self._check = check
        self._quick = quick
        self._traced = traced
        self._context: Context = copy_context()
        self.fails_call = fails_call
        """Whether a wrong result makes the call fail. Otherwise no call has to wait for the check."""

    def passes(self, result: Mapping[str, Any]) -> bool:
        """Whether the result certainly fits, as microseconds can tell. If not, the whole check decides."""
        quick = self._quick
        return quick is not None and "structuredContent" in result and quick(result["structuredContent"])

    def problem(self, result: Mapping[str, Any]) -> InvalidResponse | None:
        """Check a result now. Returns the error that the call fails with, or None. May take seconds."""
        return self._context.run(self._problem, result)

    def _problem(self, result: Mapping[str, Any]) -> InvalidResponse | None:
        if self._traced is not None:
            # In a copy of the caller's context, so nothing has to be detached.
            contexts.attach(self._traced)
        return self._check(result)

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task, such as `problem`, on the server's check thread. Raises `PoolExhausted`."""
        self._checks.threads.submit(task)

    def note(self, result: Mapping[str, Any]) -> None:
        """Check a result soon, for the log. The caller may change the result afterwards."""
        if result.get("isError") is True:
            return
        part = {"structuredContent": result["structuredContent"]} if "structuredContent" in result else {}
        # An application's transport may return values that are not JSON, or numbers too large for this encoder.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            self.note_bytes(orjson.dumps(part))

    def note_bytes(self, result: bytes) -> None:
        self._checks.add(self, result)


class OutputValidation:
    """The compiled output schemas of one server's tools. Thread-safe."""

    def __init__(self, server: str, mode: OutputMode, redact: Callable[[str], str]) -> None:
        self._server = server
        self._mode = mode
        self._redact = redact
        self._ready: dict[str, tuple[dict[str, Any], JsonSchema | None]] = {}
        """By tool name: the schema as listed, and its compiled form, or None if the schema cannot be used."""

    def check_of(
        self, tool: MCPTool, checks: OutputChecks, traced: contexts.Context | None = None
    ) -> OutputCheck | None:
        """The check of a call that is made now, in this context; `traced` has its span."""
        schema = tool.output_schema
        if schema is None or self._mode == "off":
            return None
        check = functools.partial(self._check, tool.name, schema)
        known = self._ready.get(tool.name)
        quick = None if known is None or known[0] is not schema or known[1] is None else known[1].quick
        return OutputCheck(checks, check, quick, traced, fails_call=self._mode == "error")

    def prepare(self, tools: Iterable[MCPTool]) -> Iterator[None]:
        """Compile the schemas of listed tools, one with each step. The first one takes a tenth of a second."""
        if self._mode == "off":
            return
        for tool in tools:
            if tool.output_schema is not None and len(self._ready) < _MAX_SCHEMAS:
                self._usable(tool.name, tool.output_schema)
                yield

    def _check(self, tool: str, schema: dict[str, Any], result: Mapping[str, Any]) -> InvalidResponse | None:
        if result.get("isError") is True:
            return None
        problems = self._problems(tool, schema, result)
        if not problems:
            return None
        text = self._redact("; ".join(problems))
        logger.warning("output_invalid", server=self._server, tool=tool, problems=text)
        if self._mode == "warn":
            return None
        return InvalidResponse(f"the result of {tool} does not fit its outputSchema: {text}")

    def _problems(self, tool: str, schema: dict[str, Any], result: Mapping[str, Any]) -> list[str]:
        usable = self._usable(tool, schema)
        if usable is None:
            return []
        if "structuredContent" not in result:
            return ["there is no structuredContent"]
        try:
            return usable.problems(result["structuredContent"])
        except CheckGivenUp as error:
            logger.warning("output_unchecked", server=self._server, tool=tool, reason=str(error))
        except SchemaUnusable as error:
            self._give_up(tool, schema, error)
        return []

    def _usable(self, tool: str, schema: dict[str, Any]) -> JsonSchema | None:
        known = self._ready.get(tool)
        if known is not None and (known[0] is schema or known[0] == schema):
            # `check_of` compares by identity, and a new listing has made a new schema.
            self._ready[tool] = (schema, known[1])
            return known[1]
        if len(self._ready) >= _MAX_SCHEMAS:
            self._ready.clear()
        try:
            usable = JsonSchema(schema, on_skipped=lambda part: self._skipped(tool, part))
        except SchemaUnusable as error:
            self._give_up(tool, schema, error)
            return None
        self._ready[tool] = (schema, usable)
        return usable

    def _skipped(self, tool: str, part: str) -> None:
        logger.warning("output_partly_unchecked", server=self._server, tool=tool, part=self._redact(part))

    def _give_up(self, tool: str, schema: dict[str, Any], error: SchemaUnusable) -> None:
        logger.warning("output_schema_unusable", server=self._server, tool=tool, reason=str(error))
        self._ready[tool] = (schema, None)
