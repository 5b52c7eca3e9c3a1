"""`gaia mcp call`, `resources`, `read`, `prompts` and `prompt`: use what one server offers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from typer import Argument, Exit, Option

from gaia.cli import arguments, terminal
from gaia.cli.descriptions import prompt_sections, readable, readable_resource, resource_table
from gaia.cli.options import Options, with_options
from gaia.cli.questions import Questions
from gaia.cli.servers import ServerName, connected
from gaia.cli.terminal import FAILED, CommandFailed, unknown_name, usage_error
from gaia.cli.time_limit import OutOfTime
from gaia.cli.trusting import load_to_start
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from gaia.mcp.tools.tool_result import ToolResult

_DELIVERY = {
    "not_sent": "The server did not get the call: it is safe to repeat it.",
    "unknown": "The server may have acted on the call: look before you repeat it.",
}

_SANDBOXED = 'It runs in a sandbox: what its "sandbox" does not permit is missing, read-only or refused.'
"""Shown with a tool's error, because the server's message may name only the path that the sandbox refused."""

_ANSWERED = ("jsonrpc", "invalid_response", "denied", "not_approved")
"""Types of errors after which the outcome of the call is certain."""


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def call(
    options: Options,
    name: ServerName,
    tool: Annotated[str, Argument(help="The tool, by the server's own name for it.")],
    words: Annotated[
        list[str] | None,
        Argument(
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
            result = questions.run(request, limit=entry.timeout, quiet=progress.paused)
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
        raise Exit(FAILED)


def _schema_of(client: MCPClient, tool: str) -> dict[str, Any]:
    """The tool's ``inputSchema``; empty if it is unknown. Raises CommandFailed if the server has no such tool."""
    tools = {known.name: known for known in client.list_tools()}
    if tool in tools:
        return tools[tool].input_schema
    # The client itself refuses a hidden tool. A server that cannot list its tools may still have this tool.
    if tools and tool not in client.denied_tools and tool not in client.blocked_tools:
        raise unknown_name("tool", tool, tools, place=f" on server {client.name!r}")
    return {}


class _Progress:
    """A progress bar on standard error. It appears with the first report, and only on a terminal."""

    def __init__(self, tool: str, options: Options) -> None:
        self.is_shown = terminal.err().is_terminal and not options.json
        self._tool = tool
        self._lock = reentrant_lock()
        """Guards `_pauses`: reports come on the call's thread, pauses on the main thread."""
        self._pauses = False

    def __enter__(self) -> Self:
        if self.is_shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            # The description is the server's text.
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=terminal.err(), transient=True)
            self._task = self._bar.add_task(one_line(self._tool), total=None)
        return self

    def __exit__(self, *_: object) -> None:
        # A bar that was never started would write an empty line to a dumb terminal.
        if self.is_shown and self._bar.live.is_started:
            self._bar.stop()

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        with self._lock:
            if self.is_shown and not self._pauses:
                self._bar.start()
                words = one_line(message or self._tool)
                self._bar.update(self._task, completed=progress, total=total, description=words)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        with self._lock:
            self._pauses = True
            self.__exit__()
        try:
            yield
        finally:
            self._pauses = False


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


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_resources(options: Options, name: ServerName) -> None:
    """List the resources of one server, and its templates for the URIs of more.

    Examples:
      gaia mcp resources notes
      gaia mcp resources notes --json
    """
    with connected(name, options) as client:
        offered = "resources" in client.capabilities
        resources = client.list_resources() if offered else []
        templates = client.list_resource_templates() if offered else []
    if options.json:
        terminal.print_json({"server": name, "resources": resources, "resourceTemplates": templates})
    elif resources or templates:
        terminal.show(resource_table([*resources, *templates]))
        if resources:
            terminal.say(f"Read one: {options.command('read', name, str(resources[0].get('uri')))}", "dim")
    else:
        terminal.say(f"{name} offers no resources")


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def read_resource(
    options: Options,
    name: ServerName,
    uri: Annotated[str, Argument(help="The resource, as `gaia mcp resources` shows it.")],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Save it there, byte for byte.")
    ] = None,
) -> None:
    """Read a resource of a server and print its text.

    On a terminal and in a pipe it is shown without control characters, and bytes are only named; --output saves all of
    it as it is, and replaces the file.

    Examples:
      gaia mcp read notes file:///notes/today.md
      gaia mcp read notes file:///notes/plan.png --output plan.png
    """
    result = _request(name, options, "resources", "resources/read", {"uri": uri})
    contents = _list(result.get("contents"))
    if output is not None:
        size = _save(contents, output, uri)
        document = {"uri": uri, "file": str(output), "bytes": size}
        terminal.answer(options.json, document, f"Saved {size} bytes in {output}")
    elif options.json:
        terminal.print_json(result)
    else:
        for content in contents:
            terminal.show(terminal.text(readable_resource(content)))


def _save(contents: list[Any], file: Path, uri: str) -> int:
    """Write the only item of the contents to a file. Returns its size in bytes."""
    if len(contents) != 1:
        message = f"{uri} has {len(contents)} contents, and --output saves one"
        raise CommandFailed(message, hint="Use --json to get all of them.", error_type="not_one_content")
    match contents[0]:
        case {"text": str(text)}:
            data = text.encode("utf-8", "surrogatepass")
        case {"blob": str(blob)}:
            try:
                data = base64.b64decode(blob, validate=True)
            except ValueError as error:
                message = f"the bytes of {uri} are no Base64: {error}"
                raise CommandFailed(message, error_type="invalid_response") from error
        case _:
            raise CommandFailed(f"{uri} has neither text nor bytes", error_type="invalid_response")
    try:
        file.expanduser().write_bytes(data)
    except OSError as error:
        raise usage_error(f"{os.fspath(file)} cannot be written: {error.strerror}") from error
    return len(data)


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_prompts(options: Options, name: ServerName) -> None:
    """List the prompts of one server, with their arguments. Those that wait for approval are not shown.

    Examples:
      gaia mcp prompts notes
    """
    with connected(name, options) as client:
        prompts = client.list_prompts() if "prompts" in client.capabilities else []
    if options.json:
        terminal.print_json({"server": name, "prompts": prompts})
    elif prompts:
        terminal.show(prompt_sections(prompts))
    else:
        terminal.say(f"{name} offers no prompts")


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def get_prompt(
    options: Options,
    name: ServerName,
    prompt: Annotated[str, Argument(help="The prompt, as `gaia mcp prompts` shows it.")],
    words: Annotated[
        list[str] | None, Argument(metavar="ARGUMENTS", help="key=value, as often as needed; key=@FILE.")
    ] = None,
) -> None:
    """Get a prompt of a server, filled in with arguments, and print its messages.

    Each message follows the role that it is for. Arguments of prompts are always text.

    Examples:
      gaia mcp prompt notes summarize topic=travel
      gaia mcp prompt notes review text=@note.md
    """
    given = dict(arguments.assignments(words or []))

    def check(client: MCPClient) -> None:
        # A server that lists no prompts may still know this one.
        known = {str(one.get("name")): one for one in client.list_prompts()}
        if known and prompt not in known:
            raise unknown_name("prompt", prompt, known, place=f" on server {name!r}")
        declared = [one for one in _list(known.get(prompt, {}).get("arguments")) if isinstance(one, Mapping)]
        required = [str(one.get("name")) for one in declared if one.get("required") is True]
        missing = [argument for argument in required if argument not in given]
        if missing:
            message = f"the prompt {prompt!r} requires {', '.join(map(repr, missing))}"
            raise usage_error(message, f"Give each as key=value, such as {missing[0]}=…", "missing_argument")

    result = _request(name, options, "prompts", "prompts/get", {"name": prompt, "arguments": given}, check)
    if options.json:
        terminal.print_json(result)
        return
    for message in _list(result.get("messages")):
        fields = message if isinstance(message, Mapping) else {}
        terminal.say(f"{one_line(fields.get('role', 'unknown'))}:", "bold")
        # Indented, so that no line of the message looks like a role.
        terminal.say(f"  {readable(fields.get('content', message))}")


def _request(
    name: str,
    options: Options,
    kind: str,
    method: str,
    params: dict[str, Any],
    check: Callable[[MCPClient], None] = lambda _: None,
) -> dict[str, Any]:
    """The result of a request to a server with `kind`, whose questions the person answers. Raises CommandFailed."""
    from gaia.mcp.config.server_config import ServerConfig

    servers = load_to_start(options)
    questions = Questions(options)
    with connected(name, options, servers, questions) as client:
        if kind not in client.capabilities:
            raise CommandFailed(f"{name} offers no {kind}", error_type="not_offered")
        check(client)
        limit = ServerConfig.from_dict(name, servers.get_server(name)).timeout
        return questions.run(lambda seconds: client.request(method, params, timeout=seconds), limit=limit)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
