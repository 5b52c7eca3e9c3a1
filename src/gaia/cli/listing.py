"""`gaia mcp list` and `gaia mcp tools`: which servers there are, and what they offer."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import server_table, tool_table
from gaia.cli.servers import complete_name, connected, waiting_for
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.client.tool import MCPTool

__all__ = ["list_servers", "list_tools", "say_that_there_are_none"]


@with_options("trust", "config", "as_json", "trace", "debug")
def list_servers(
    options: Options,
    connect: Annotated[
        bool, typer.Option("--connect/--no-connect", help="Start each server to see how it is, or only read the files.")
    ] = True,
) -> None:
    """List the configured servers: state, number of tools, and the file each comes from.

    All are started at once to see how they are, and stopped again; disabled ones are not.
    """
    servers = load_to_start(options) if connect else options.load_config()
    rows = _rows_connected(servers, options) if connect else _rows_read(servers)
    if options.json:
        terminal.print_json({"servers": rows})
        return
    if not rows:
        say_that_there_are_none(servers)
        return
    terminal.show(server_table(rows))
    for row in rows:
        if row["error"] is not None:
            terminal.say(f"{terminal.one_line(row['name'])}: {row['error']}", "red")


@with_options("trust", "config", "as_json", "trace", "debug")
def list_tools(
    options: Options,
    name: Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)],
) -> None:
    """List the tools of one server. Tools that its filters deny are not shown; those that wait for approval are marked.

    Parameters in brackets may be left out.
    """
    with connected(name, options) as client:
        tools, problem = client.list_tools(), client.last_error
        blocked = list(client.blocked_tools.values())
    if options.json:
        definitions = [_definition(tool) | {"blocked": tool in blocked} for tool in (*tools, *blocked)]
        terminal.print_json({"server": name, "tools": definitions})
    elif tools or blocked:
        terminal.show(tool_table(tools, blocked))
        if blocked:
            terminal.say(f"Blocked until you have seen what changed: gaia mcp approve {shlex.quote(name)}", "red")
    else:
        terminal.say(f"{name} offers no tools{'' if problem is None else f': {problem}'}")


def _definition(tool: MCPTool) -> dict[str, Any]:
    """The tool in the words of the protocol."""
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }


def say_that_there_are_none(servers: MCPConfig) -> None:
    """For commands about all servers."""
    terminal.say(f"No servers are configured in {servers.config_file}")
    terminal.say('Add one: gaia mcp add time "uvx mcp-server-time"', "dim")


def _rows_read(servers: MCPConfig) -> list[dict[str, Any]]:
    return [_row_read(servers, name) for name in servers.get_entries()]


def _row_read(servers: MCPConfig, name: str) -> dict[str, Any]:
    if (problem := servers.problems.get(name)) is not None:
        return _row(servers, name, "invalid", error=problem)
    return _row(servers, name, "disabled" if servers.get_server(name).get("disabled") else "enabled")


def _rows_connected(servers: MCPConfig, options: Options) -> list[dict[str, Any]]:
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.supervision.events import ServerState

    with MCPClientManager(servers, debug=options.debug) as manager:
        with waiting_for("Starting the servers", options):
            manager.load_from_config(keep_trying=False)
        statuses = {status.name: status for status in manager.status()}
    rows = []
    for name in servers.get_entries():
        status = statuses.get(name)
        if status is None:
            rows.append(_row_read(servers, name))
        else:
            tools = status.tool_count if status.state is ServerState.READY else None
            rows.append(_row(servers, name, status.state.value, tools=tools, error=status.last_error))
    return rows


def _row(
    servers: MCPConfig, name: str, state: str, *, tools: int | None = None, error: str | None = None
) -> dict[str, Any]:
    source = servers.source_of(name)
    sandbox = servers.get_server(name).get("sandbox", False)
    found = {"name": name, "state": state, "tools": tools, "source": source and str(source), "error": error}
    return {**found, "sandbox": sandbox}
