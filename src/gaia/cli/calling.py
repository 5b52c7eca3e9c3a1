"""`gaia mcp call`: calls one tool once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from gaia.cli import arguments, terminal, time_limit
from gaia.cli.descriptions import readable
from gaia.cli.options import Options, with_options
from gaia.cli.questions import Questions
from gaia.cli.servers import ServerName, connected
from gaia.cli.terminal import FAILED, unknown_name
from gaia.cli.time_limit import OutOfTime
from gaia.cli.trusting import load_to_start
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

    from gaia.mcp.client import MCPClient
    from gaia.mcp.tools.tool_result import ToolResult

_DELIVERY = {
    "not_sent": "The server did not get the call: it is safe to repeat it.",
    "unknown": "The server may have acted on the call: look before you repeat it.",
}

_SANDBOXED = 'It runs in a sandbox: what its "sandbox" does not permit is missing, read-only or refused.'
"""Shown with an error of a tool: the server's message may name only the path that the sandbox refused."""

_ANSWERED = ("jsonrpc", "invalid_response", "denied", "not_approved")
"""Types of errors after which the outcome of the call is certain."""


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def call(
    options: Options,
    name: ServerName,
    tool: Annotated[str, typer.Argument(help="The tool, by the server's own name for it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENTS",
            help="key=value, as often as needed; or one JSON object: in quotes, @FILE, or - for standard input.",
        ),
    ] = None,
) -> None:
    """Call a tool of a server and print its result.

    In key=value the value is taken as JSON if it is JSON and the tool does not ask for a string, otherwise as a string.
    key=@FILE takes the text of a file, key=@- that of standard input, and key=@@x is the value @x. What the server asks
    meanwhile (elicitation) is asked at the terminal; without one it is declined.
    The exit status is 1 if the tool reports an error, or cannot be called.

    Examples:
      gaia mcp call time get_current_time timezone=Europe/Berlin
      gaia mcp call time get_current_time '{"timezone": "UTC"}' --timeout 5
      gaia mcp call notes add text=@note.md
      gaia mcp call notes add @arguments.json
    """
    from gaia.mcp.config.server_config import ServerConfig
    from gaia.mcp.tools.tool_result import ToolResult

    given = arguments.parse(words or [])
    servers = load_to_start(options)
    questions = Questions(options)
    with connected(name, options, servers, questions) as client, _Progress(tool, options) as progress:
        schema = _schema_of(client, tool)
        resolved = given.resolve(schema) if isinstance(given, arguments.Assignments) else given
        entry = ServerConfig.from_dict(name, servers.get_server(name))

        def report(*progressed: Any) -> None:
            progress.report(*progressed)
            if entry.reset_timeout_on_progress:
                questions.progressed()

        def request(seconds: float | None) -> ToolResult:
            on_progress = report if progress.is_shown or entry.reset_timeout_on_progress else None
            return client.call_tool(tool, resolved, timeout=seconds, on_progress=on_progress)

        try:
            result = questions.run(request, timeout=time_limit.remaining(), limit=entry.timeout, quiet=progress.paused)
        except OutOfTime as error:
            result = ToolResult({"error": str(error), "error_type": "timeout", "delivery": "unknown"})
        if questions.timed_out and result.get("error_type") == "cancelled":
            result = ToolResult({"error": questions.late, "error_type": "timeout", "delivery": result["delivery"]})
    if options.json:
        terminal.print_json(result)
    else:
        _show(result)
        if result.get("error_type") == "denied":
            terminal.note(f"Its entry is in {servers.source_of(name)}")
        if result.is_error and "error_type" not in result and servers.get_server(name).get("sandbox"):
            terminal.note(_SANDBOXED)
    if result.is_error:
        raise typer.Exit(FAILED)


def _schema_of(client: MCPClient, tool: str) -> dict[str, Any]:
    """The tool's ``inputSchema``; empty if it is unknown. Raises CommandFailed if the server has no such tool."""
    tools = {known.name: known for known in client.list_tools()}
    if tool in tools:
        return tools[tool].input_schema
    # The client itself refuses a hidden tool. A server that cannot list its tools may still have this one.
    if tools and tool not in client.denied_tools and tool not in client.blocked_tools:
        raise unknown_name("tool", tool, tools, place=f" on server {client.name!r}")
    return {}


class _Progress:
    """A progress bar on standard error. It appears with the first report, if standard error is a terminal."""

    def __init__(self, tool: str, options: Options) -> None:
        self.is_shown = terminal.err().is_terminal and not options.json
        self._tool = tool
        self._lock = reentrant_lock()
        """Owns `_bar` and `_pauses`: reports come on the thread of the call, pauses on the main thread."""
        self._bar: Progress | None = None
        self._pauses = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.stop()

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        with self._lock:
            if not self.is_shown or self._pauses:
                return
            bar = self._bar = self._bar or self._new_bar()
            bar.start()
            bar.update(
                bar.task_ids[0],
                completed=progress,
                total=total,
                description=one_line(message or self._tool),
            )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while a person types."""
        with self._lock:
            self._pauses = True
            if self._bar is not None:
                self._bar.stop()
        try:
            yield
        finally:
            with self._lock:
                self._pauses = False

    def _new_bar(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        # The description is the server's text.
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=terminal.err(), transient=True)
        bar.add_task(one_line(self._tool), total=None)
        return bar


def _show(result: ToolResult) -> None:
    if "error_type" in result:
        terminal.note(f"Error: {result.error}", "red")
        if result["error_type"] not in _ANSWERED:
            terminal.note(_DELIVERY[result["delivery"]])
        return
    if result.is_error:
        terminal.note("The tool reported an error:", "red")
    content = result.get("content")
    blocks = [readable(block) for block in content] if isinstance(content, list) else []
    if not blocks and "structuredContent" in result:
        blocks = [json.dumps(result["structuredContent"], indent=2, ensure_ascii=False)]
    for block in blocks:
        if result.is_error:
            # Tool errors go to standard error, below the line that announces them.
            terminal.note(f"  {block}")
        else:
            terminal.show(terminal.text(block))
