"""`gaia mcp call`: one tool, once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import arguments, terminal
from gaia.cli.command_errors import FAILED, unknown_name
from gaia.cli.options import Options, TimeoutOption, with_options
from gaia.cli.servers import complete_name, connected
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from gaia.mcp.client.tool_result import ToolResult

__all__ = ["call"]

_DELIVERY = {
    "not_sent": "The server did not get the call: it is safe to repeat it.",
    "unknown": "The server may have acted on the call: look before you repeat it.",
}

_SANDBOXED = 'It runs in a sandbox: what its "sandbox" does not permit is missing, read-only or refused.'
"""Errors of a tool that meets them have the words of the server, such as only the path."""

_ANSWERED = ("jsonrpc", "invalid_response", "denied", "not_approved")
"""Errors that leave no doubt about what happened to the call."""


@with_options("trust", "config", "as_json", "trace", "debug")
def call(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
    tool: Annotated[str, typer.Argument(help="The tool, by the server's own name for it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="key=value, as often as needed; or one JSON object, in quotes."),
    ] = None,
    timeout: TimeoutOption = None,
) -> None:
    """Call a tool of a server and print its result.

    In key=value the value is taken as JSON if it is JSON and the tool does not ask for a string, otherwise as a string.
    The exit status is 1 if the tool reports an error, or cannot be called.
    """
    given = arguments.parse(words or [])
    servers = load_to_start(options)
    with connected(name, options, servers) as client:
        schema = _schema_of(client, tool)
        resolved = given.resolve(schema) if isinstance(given, arguments.Assignments) else given
        with _progress(tool, options) as on_progress:
            result = client.call_tool(tool, resolved, timeout=timeout, on_progress=on_progress)
    if options.json:
        terminal.print_json(result)
    else:
        _show(result)
        if result.is_error and "error_type" not in result and servers.get_server(name).get("sandbox"):
            terminal.say(_SANDBOXED, console=terminal.err())
    if result.is_error:
        raise typer.Exit(FAILED)


def _schema_of(client: MCPClient, tool: str) -> dict[str, Any]:
    """What the tool takes; empty if the server does not say. Raises CommandFailed for a name it does not have."""
    tools = {known.name: known for known in client.list_tools()}
    if tool in tools:
        return tools[tool].input_schema
    # A hidden tool is refused by the client, and a server that cannot list its tools may still know this one.
    if tools and tool not in client.denied_tools and tool not in client.blocked_tools:
        raise unknown_name("tool", tool, tools, place=f" on server {client.name!r}")
    return {}


@contextlib.contextmanager
def _progress(tool: str, options: Options) -> Iterator[Callable[[float, float | None, str | None], None] | None]:
    """Where progress goes: a bar on standard error, from the first report on; None if that is no terminal."""
    console = terminal.err()
    if options.json or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Its text comes from the server.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with contextlib.ExitStack() as stack:
        bar = Progress(*columns, console=console, transient=True)
        task = bar.add_task(terminal.one_line(tool), total=None)
        started = False

        def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal started
            if not started:
                started = True
                stack.enter_context(bar)
            bar.update(task, completed=progress, total=total, description=terminal.one_line(message or tool))

        yield report


def _show(result: ToolResult) -> None:
    if "error_type" in result:
        console = terminal.err()
        terminal.say(f"Error: {result.error}", "red", console=console)
        if result["error_type"] not in _ANSWERED:
            terminal.say(_DELIVERY[result["delivery"]], console=console)
        return
    console = terminal.err() if result.is_error else terminal.out()
    if result.is_error:
        terminal.say("The tool reported an error:", "red", console=console)
    content = result.get("content")
    blocks = [_readable(block) for block in content] if isinstance(content, list) else []
    if not blocks and "structuredContent" in result:
        blocks = [json.dumps(result["structuredContent"], indent=2, ensure_ascii=False)]
    for block in blocks:
        terminal.say(block, console=console)


def _readable(block: Any) -> str:
    """One content block (specification, "Tool Result") as text; what is no text is named."""
    match block:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "resource", "resource": {"text": text}}:
            return str(text)
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri}]"
        case {"type": "resource_link", "uri": uri}:
            return f"[resource {uri}]"
        case {"type": "image" | "audio" as kind, "data": str(data), **others}:
            return f"[{kind}, {others.get('mimeType', 'of unknown type')}, {len(data) * 3 // 4} bytes]"
        case _:
            return json.dumps(block, ensure_ascii=False)
