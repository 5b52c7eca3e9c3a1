"""`gaia mcp watch`: shows all servers live."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gaia.cli import terminal
from gaia.cli.listing import say_that_there_are_none
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import status_table
from gaia.cli.running_gateway import TokenOption, UrlArgument, fetch_status, summary_of
from gaia.cli.servers import waiting_for
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.ping import PingMonitor
    from gaia.mcp.supervision.status import ServerStatus

_FIRST_SECONDS = 2.0
"""Seconds that the table of ``--once`` waits for latencies."""

IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.1, max=3600, metavar="SECONDS", help="Time between two looks.")
]


@with_options("trust", "config", "as_json", "trace", "debug")
def watch(
    options: Options,
    url: UrlArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table when all have started, and exit.")] = False,
    interval: IntervalOption = 0.5,
    token: TokenOption = None,
) -> None:
    """Start all servers that are not disabled, and watch them until Ctrl-C, which stops them.

    Shows for each its state, generation, restarts, calls in flight and queued, latencies and last error; in a
    narrow terminal those that fit beside the last error. The latencies are those of a small question that each server
    is asked once a second. With --json every look is one line with a
    JSON object. Where standard output is no terminal, it is --once.

    With the URL of a gateway, its servers are shown, with the latencies of its calls, and none is started or stopped.

    Examples:
      gaia mcp watch
      gaia mcp watch --once
      gaia mcp watch http://127.0.0.1:8765/mcp
    """
    once = once or not (options.json or sys.stdout.isatty())
    if url is not None:
        _show(lambda: _look_at_gateway(url, token), interval, options, once=once)
        return
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.ping import PingMonitor

    servers = load_to_start(options)
    with MCPClientManager(servers, debug=options.debug, start_timeout=None) as manager, contextlib.ExitStack() as stack:
        if once:
            stack.enter_context(waiting_for("Starting the servers", options))
            manager.load_from_config(keep_trying=False)
        else:
            # A slower server is shown as starting.
            manager.load_from_config(timeout=interval)
        with PingMonitor(manager) as monitor:
            if once:
                monitor.wait(manager.list_servers(), _FIRST_SECONDS)
                stack.close()
                if not options.json and not manager.status():
                    say_that_there_are_none(servers, options)
                    return
            _show(lambda: _look_at(manager, monitor), interval, options, once=once)


class _Look(NamedTuple):
    document: dict[str, Any]
    """For programs."""
    servers: Sequence[tuple[ServerStatus, Sequence[float | None]]]
    """Each server with its last round trips, in seconds; None for a ping without an answer."""
    summary: str | None
    """One line about the gateway; None without one."""


def _look_at(manager: MCPClientManager, monitor: PingMonitor) -> _Look:
    import msgspec

    found = [(status, monitor.of(status.name)) for status in manager.status()]
    rows = [{**msgspec.to_builtins(status), "round_trips": round_trips} for status, round_trips in found]
    return _Look({"servers": rows}, found, None)


def _look_at_gateway(url: str, token: str | None) -> _Look:
    status = fetch_status(url, token)
    return _Look(status.to_builtins(), [(server, []) for server in status.servers], summary_of(status))


def _show(look: Callable[[], _Look], interval: float, options: Options, *, once: bool) -> None:
    """Show the result of `look`, once or until Ctrl-C."""
    found = look()
    if options.json and once:
        terminal.print_json(found.document)
    elif options.json:
        while True:
            print(json.dumps(found.document), flush=True)
            time.sleep(interval)
            found = look()
    elif once:
        terminal.show(status_table(found.servers, width=terminal.out().width))
        if found.summary is not None:
            terminal.say(found.summary, "dim")
    else:
        _show_live(found, look, interval)


def _show_live(found: _Look, look: Callable[[], _Look], interval: float) -> None:
    from rich.console import Group
    from rich.live import Live

    console = terminal.out()

    def drawn(found: _Look) -> Group:
        ascii_only, live = console.options.ascii_only, found.summary is None
        table = status_table(found.servers, width=console.width, live=live, ascii_only=ascii_only)
        return Group(table) if found.summary is None else Group(table, terminal.text(found.summary, "dim"))

    # Each look is drawn in one write, so nothing flickers.
    with Live(drawn(found), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(drawn(look()), refresh=True)
