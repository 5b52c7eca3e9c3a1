"""`ToolExecutor` makes a model's tool calls, and `ResultBudget` shortens their results.

The model receives only the head and the tail of a result beyond the budget. A private file has the full text, and the
model gets its path for tools that read files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaia.agents.base import agent_spans
from gaia.agents.base.agent_result import Outcome
from gaia.agents.base.confirmation import ConfirmationGate
from gaia.agents.base.console import Console
from gaia.agents.base.tool_schema import api_names, takes_any_keyword
from gaia.agents.base.tools import AmbiguousToolName, Entry, ToolNotFound, viewed_through
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.untrusted_text import parsed_arguments

logger = get_logger(__name__)


class CallNotMade(Exception):
    """A call that is not made, with a message for the model, and the tool's key, or the model's name for it."""

    def __init__(self, message: str, tool: str, outcome: Outcome = "error") -> None:
        super().__init__(message)
        self.tool = tool
        self.outcome = outcome


@dataclass(slots=True, eq=False)
class PreparedCall:
    key: str
    arguments: dict[str, Any]
    entry: Entry
    confirmed: bool = False

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Let `ToolExecutor.execute` skip the preparation and confirmation of this call.

        A context variable is used because `Agent._execute_tool` and its overrides are in between.
        """
        token = _under_way.set(self)
        try:
            yield
        finally:
            _under_way.reset(token)


_under_way: ContextVar[PreparedCall | None] = ContextVar("gaia_prepared_call", default=None)


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Makes the tool calls of an agent. Thread-safe.

    A call is prepared, confirmed and run. `execute` does all three, and turns failures into a result for the model. A
    run of an agent prepares and confirms all calls of a step before it runs any.
    """

    registry: Mapping[str, Entry]
    resolve: Callable[[str], str]
    """Returns the key of the tool with a name; raises `ToolNotFound` and `AmbiguousToolName`."""
    gate: ConfirmationGate
    console: Console
    explain_missing: Callable[[str], str | None] = lambda _: None
    """Explains why a tool is missing that may appear later; None for an unknown name."""

    def execute(self, name: str, arguments: dict[str, Any]) -> Any:
        """Make a call and return the tool's result.

        A failure is returned as ``{"status": "error", "error": message}``; only KeyboardInterrupt and SystemExit are
        raised.
        """
        try:
            call = self._prepared(name, arguments) or self.prepare(name, arguments)
            with viewed_through(self.registry):
                self.confirm(call)
                return self._run(call, arguments)
        except CallNotMade as reason:
            return error_result(str(reason))
        except Exception as error:  # noqa: BLE001 - a tool is the application's code, and its failure is for the model
            logger.warning("tool_failed", tool=name, error=exception_text(error))
            return error_result(f"{type(error).__name__}: {error}")

    def prepare(self, name: str, arguments: dict[str, Any]) -> PreparedCall:
        """Find the tool and check the arguments. Raises `CallNotMade`."""
        key = name
        try:
            key = self.resolve(name if name in self.registry else api_names(list(self.registry)).get(name, name))
            entry = self.registry[key]
        except ToolNotFound as error:
            raise CallNotMade(self.explain_missing(name) or str(error), key) from None
        except AmbiguousToolName as error:
            raise CallNotMade(str(error), key) from None
        except KeyError:
            raise CallNotMade(f"The tool {key!r} has just gone", key) from None
        function = entry.get("function")
        if not callable(function):
            raise CallNotMade(f"The tool {key!r} cannot be called", key)
        if problem := _argument_problem(key, entry.get("parameters") or {}, function, arguments):
            raise CallNotMade(problem, key)
        return PreparedCall(key, dict(arguments), entry)

    def confirm(self, call: PreparedCall) -> None:
        """Ask for a confirmation if the policy requires one and none was given. Raises `CallNotMade`."""
        if not call.confirmed:
            if refusal := self.gate.refusal(call.key, call.entry, call.arguments):
                raise CallNotMade(refusal, call.key, "refused")
            call.confirmed = True

    def _run(self, call: PreparedCall, arguments: dict[str, Any]) -> Any:
        self.console.print_tool_usage(call.key)
        # A call to an MCP server has its own span.
        with contextlib.nullcontext() if "_mcp_server" in call.entry else agent_spans.native_tool_span(call.key):
            return call.entry["function"](**arguments)

    def _prepared(self, name: str, arguments: object) -> PreparedCall | None:
        """The prepared call under way, unless its tool, its arguments or its registry entry have changed."""
        call = _under_way.get()
        if call is None or call.key != name or call.arguments != arguments:
            return None
        return call if self.registry.get(name) is call.entry else None


def error_result(message: str) -> dict[str, Any]:
    return {"status": "error", "error": message}


def parse_arguments(written: object, tool: str) -> dict[str, Any]:
    """The arguments in a model's tool call. Raises `CallNotMade`."""
    try:
        return parsed_arguments(written)
    except ValueError as error:
        raise CallNotMade(str(error), tool) from None


def _argument_problem(
    name: str, parameters: Mapping[str, Any], function: Callable[..., Any], arguments: object
) -> str | None:
    if not isinstance(arguments, dict):
        return f"Arguments of tool {name!r} must be an object, not {type(arguments).__name__}"
    problems = []
    missing = [key for key, about in parameters.items() if about.get("required") and key not in arguments]
    if missing:
        problems.append(f"missing required: {', '.join(missing)}")
    unknown = [str(key) for key in arguments if key not in parameters]
    # A function that takes any keyword checks its arguments itself. So do MCP tools, whose schemas may allow more than
    # they list.
    if unknown and not takes_any_keyword(function):
        problems.append(f"unknown: {', '.join(unknown)}")
    if not problems:
        return None
    expected = ", ".join(f"{key}{'' if about.get('required') else '?'}" for key, about in parameters.items())
    return f"Wrong arguments for tool {name!r}: {'; '.join(problems)} (it takes: {expected or 'none'})"


_HEAD_SHARE = 2 / 3


def text_of_result(result: Any) -> str:
    """A tool's return value as text for a model: text unchanged, other values as JSON if possible."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        # The keys are not text, or the structure contains itself.
        return repr(result)


class ResultBudget:
    """Shortens texts of more than `max_bytes` bytes in UTF-8. Thread-safe.

    Full texts are kept in `directory`, or in a temporary directory that is deleted with this object or the process.
    """

    def __init__(self, max_bytes: int, directory: str | os.PathLike[str] | None = None) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_result_bytes must be positive, not {max_bytes}")
        self.max_bytes = max_bytes
        self._directory = None if directory is None else Path(directory)
        self._lock = reentrant_lock()

    def fit(self, text: str, tool: str) -> str:
        """`text` if it is short enough, else its head and its tail around a note about the full text.

        Head and tail together have at most `max_bytes` bytes; the note is extra.
        """
        # JSON can carry lone surrogates, which UTF-8 cannot encode and endpoints would refuse.
        data = text.encode("utf-8", "replace")
        if len(data) <= self.max_bytes:
            return data.decode()
        head = int(self.max_bytes * _HEAD_SHARE)
        tail = self.max_bytes - head
        omitted = len(data) - self.max_bytes
        return (
            data[:head].decode("utf-8", "ignore")
            + f"\n\n[… {omitted} of {len(data)} bytes left out; {self._whereabouts(data, tool)} …]\n\n"
            + data[len(data) - tail :].decode("utf-8", "ignore")
        )

    def _whereabouts(self, data: bytes, tool: str) -> str:
        try:
            return f"the full text is in {self._save(data, tool)}"
        except OSError as error:
            # A full disk makes the result shorter, but the call does not fail.
            return f"the full text could not be saved: {error.strerror or error}"

    def _save(self, data: bytes, tool: str) -> Path:
        safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in tool)[:64]
        # mkstemp makes a file that only its owner may read, and never follows a link with its name.
        descriptor, path = tempfile.mkstemp(prefix=f"{safe}-", suffix=".txt", dir=self._folder())
        with open(descriptor, "wb") as file:
            file.write(data)
        return Path(path)

    def _folder(self) -> Path:
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="gaia-results-"))
                weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
            else:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._directory
