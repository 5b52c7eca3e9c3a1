"""`gaia mcp list` and `gaia mcp tools`: list the servers, and the tools of one."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gaia.cli import terminal, time_limit
from gaia.cli.descriptions import tool_details, tool_sections
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import server_table
from gaia.cli.running_gateway import TokenOption, UrlArgument, fetch_status, rows_of
from gaia.cli.servers import ServerName, connected, say_that_there_are_none, waiting_for
from gaia.cli.terminal import unknown_name
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.supervision.status import ServerStatus

_OWN_SECONDS = 0.5
"""Seconds of the timeout for starting the interpreter and writing the answer."""

_ANSWER_SECONDS = 5.0
"""Seconds that a command with --timeout may take beyond it to write its answer."""

_MIN_SECONDS = 0.1
"""Seconds that the servers get at least, however long the command took to begin."""

_LOOK_SECONDS = 0.05
_UNDER_WAY = ("created", "starting", "restarting")
Rows = list[dict[str, Any]]


@with_options("trust", "config", "as_json", "trace", "debug")
def list_servers(
    options: Options,
    url: UrlArgument = None,
    connect: Annotated[
        bool, Option("--connect/--no-connect", help="Start each server to see how it is, or only read the files.")
    ] = True,
    timeout: Annotated[
        float, Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="How long to wait for the servers.")
    ] = 5.0,
    token: TokenOption = None,
    placed: Annotated[bool, Option("--placed", help="The servers that all programs have placed elsewhere.")] = False,
) -> None:
    """List the configured servers: state, number of tools, and the file each comes from.

    All are started at once to see how they are, and stopped again; disabled ones are not. A server that is not ready
    within five seconds (--timeout) is shown as starting. The exit status says nothing about the servers: it is 0 if
    there is a list. With the URL of a gateway, the list is about its servers, and none is started;
    with --placed about the servers that programs have placed by the engines of the configured ones.

    Examples:
      gaia mcp list
      gaia mcp list --no-connect --json
      gaia mcp list http://127.0.0.1:8765/mcp
      gaia mcp list --placed
    """
    limit = timeout if "timeout" in options.given else None
    if placed:
        if url is not None:
            raise BadParameter("it is about engines, and a URL about a gateway", param_hint="--placed")
        from gaia.cli.placement import list_placed

        list_placed(options)
    elif url is not None:
        rows = rows_of(fetch_status(url, token, limit))
        if rows or options.json:
            _show_rows(rows, options)
        else:
            terminal.say(f"{url} shows no servers: the gateway has none, or the profile of this client sees none")
    elif connect:
        _start_and_list(options, timeout, limit)
    elif limit is not None:
        why = "it has no effect with --no-connect, which waits for no server"
        raise BadParameter(why, param_hint="--timeout")
    else:
        servers = options.load_config()
        _show(servers, [_row(servers, name) for name in servers.get_entries()], options)


def _start_and_list(options: Options, timeout: float, limit: float | None) -> None:
    from gaia.mcp.client import MCPClientManager

    spent = _OWN_SECONDS + time.monotonic() - options.started
    # This may ask a person, whose time does not count.
    servers = load_to_start(options)
    time_limit.begin(limit and limit + _ANSWER_SECONDS, time.monotonic())
    manager = MCPClientManager(servers, debug=options.debug)
    try:
        # Print the answer before the servers are stopped, which may take long.
        _show(servers, _rows_connected(manager, timeout, spent, options), options)
        sys.stdout.flush()
    finally:
        with time_limit.closing(waits=False), waiting_for("Stopping the servers", options):
            manager.disconnect_all()


def _show(servers: MCPConfig, rows: Rows, options: Options) -> None:
    if not rows and not options.json:
        say_that_there_are_none(servers, options)
        return
    _show_rows(rows, options)
    late = [row["name"] for row in rows if row["waited"] is not None]
    if late and not options.json:
        command = options.command("doctor", late[0])
        terminal.say(f"--timeout SECONDS waits longer for those that are starting; {command} finds out more.", "dim")


def _show_rows(rows: Rows, options: Options) -> None:
    if options.json:
        terminal.print_json({"servers": rows})
        return
    terminal.show(server_table(rows))
    for row in rows:
        if row["error"] is not None:
            terminal.say(f"{one_line(row['name']) or repr('')}: {row['error']}", "red")


def _rows_connected(manager: MCPClientManager, timeout: float, spent: float, options: Options) -> Rows:
    """Start all servers and wait until each has answered, up to `timeout` seconds, of which `spent` have passed."""
    settled: dict[str, ServerStatus] = {}
    started = time.monotonic()
    deadline = started + max(timeout - spent, _MIN_SECONDS)
    manager.load_from_config(timeout=0, keep_trying=False)
    with _live_table(options) as show:
        while True:
            now = time.monotonic()
            statuses = {status.name: status for status in manager.status()}
            joined = manager.list_servers()
            # Keep the first answer, because the manager may be trying a failed server again.
            settled = {name: one for name, one in statuses.items() if _has_answered(one, joined)} | settled
            waited = round(timeout if now >= deadline else now - started, 1 if timeout < 1 else None)
            found = statuses | settled
            rows = [_row(manager.config, name, found.get(name), waited) for name in manager.config.get_entries()]
            if now >= deadline or statuses.keys() <= settled.keys():
                return rows
            show(rows)
            time.sleep(_LOOK_SECONDS)


def _has_answered(status: ServerStatus, joined: list[str]) -> bool:
    # A ready server counts as answered when the manager has listed its tools.
    return status.name in joined if status.state.value == "ready" else status.state.value not in _UNDER_WAY


@contextlib.contextmanager
def _live_table(options: Options) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that shows the current rows on the terminal. Without a terminal, it does nothing."""
    console = terminal.out()
    if options.json or options.debug or not console.is_terminal:
        yield lambda _: None
        return
    from rich.live import Live

    shown: Rows = []
    # The final table is printed afterwards, because a live display cuts off rows below the screen.
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(rows: Rows) -> None:
            if rows != shown:
                live.update(server_table(rows), refresh=True)
                shown[:] = rows

        yield show


def _row(
    servers: MCPConfig, name: str, status: ServerStatus | None = None, waited: float | None = None
) -> dict[str, Any]:
    """The row of a configured server. Without a `status` it was not started. `waited` is in seconds."""
    entry, source = servers.get_server(name), servers.source_of(name)
    row: dict[str, Any] = {
        "name": name,
        "state": "enabled",
        "tools": None,
        "source": source and str(source),
        "error": None,
        "waited": None,
        "sandbox": entry.get("sandbox", False),
        "standby": bool(entry.get("standby", False)),
        "node": None,
    }
    if status is not None and status.state.value in _UNDER_WAY:
        row |= {"state": "starting", "error": status.last_error, "waited": waited}
    elif status is not None:
        state, place = status.state.value, status.placement
        row |= {"state": state, "tools": status.tool_count if state == "ready" else None, "error": status.last_error}
        row["node"] = None if place is None else place.node
    elif (problem := servers.problems.get(name)) is not None:
        from gaia.mcp.config.server_config import without_name

        row |= {"state": "invalid", "error": without_name(problem, name)}
    elif entry.get("disabled"):
        row["state"] = "disabled"
    return row


@with_options("trust", "config", "timeout", "as_json", "trace", "debug")
def list_tools(
    options: Options,
    name: ServerName,
    tool: Annotated[str | None, Argument(help="Only this tool, with all that the server says of it.")] = None,
) -> None:
    """List the tools of one server: description and parameters. Tools that its filters deny are not shown.

    Those that wait for approval are marked. Of long descriptions the beginning is shown; name a tool to see all of it.

    Examples:
      gaia mcp tools time
      gaia mcp tools time get_current_time
    """
    with connected(name, options) as client:
        tools, problem = client.list_tools(), client.last_error
        blocked = list(client.blocked_tools.values())
    found = [*tools, *blocked]
    if tool is not None:
        names = [known.name for known in found]
        found = [known for known in found if known.name == tool]
        if not found:
            raise unknown_name("tool", tool, names, place=f" on server {name!r}")
    if options.json:
        # The protocol's keys.
        definitions = [
            {
                "name": known.name,
                "title": known.title,
                "description": known.description,
                "inputSchema": known.input_schema,
                "outputSchema": known.output_schema,
                "annotations": known.annotations,
                "blocked": known in blocked,
            }
            for known in found
        ]
        terminal.print_json({"server": name, "tools": definitions})
        return
    if tool is not None:
        terminal.show(tool_details(found[0], blocked=found[0] in blocked))
    elif found:
        terminal.show(tool_sections((known, known in blocked) for known in found))
    else:
        terminal.say(f"{name} offers no tools{'' if problem is None else f': {problem}'}")
    if any(known in blocked for known in found):
        terminal.say(f"Blocked until you have seen what changed: {options.command('approve', name)}", "red")
