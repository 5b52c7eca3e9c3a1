"""`gaia mcp watch`: all servers, live."""

from __future__ import annotations

import json
import sys
import time
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
    from rich.table import Table

    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.client.ping import PingMonitor
    from gaia.mcp.gateway.operations.status import GatewayStatus
    from gaia.mcp.supervision.status import ServerStatus

_FIRST_SECONDS = 2.0
"""How long the one table of ``--once`` waits for the latencies."""

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
    if url is not None:
        _watch_gateway(url, token, interval, options, once=once or not (options.json or sys.stdout.isatty()))
        return
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.ping import PingMonitor

    servers = load_to_start(options)
    with MCPClientManager(servers, debug=options.debug, start_timeout=None) as manager:
        if once or not (options.json or sys.stdout.isatty()):
            with waiting_for("Starting the servers", options):
                manager.load_from_config(keep_trying=False)
                with PingMonitor(manager) as monitor:
                    monitor.wait(manager.list_servers(), _FIRST_SECONDS)
                    looks = _looks(manager, monitor)
            _show_once(looks, servers, options)
            return
        # A server that needs longer is shown as starting.
        manager.load_from_config(timeout=interval)
        with PingMonitor(manager) as monitor:
            if options.json:
                while True:
                    print(json.dumps(_document(_looks(manager, monitor))), flush=True)
                    time.sleep(interval)
            _watch_live(manager, monitor, interval)


def _watch_gateway(url: str, token: str | None, interval: float, options: Options, *, once: bool) -> None:
    def look() -> GatewayStatus:
        return fetch_status(url, token)

    first = look()
    if options.json:
        while True:
            document = first.to_builtins()
            if once:
                terminal.print_json(document)
                return
            print(json.dumps(document), flush=True)
            time.sleep(interval)
            first = look()
    if once:
        looks = [_Look(status, []) for status in first.servers]
        terminal.show(status_table(looks, width=terminal.out().width))
        terminal.say(summary_of(first), "dim")
        return
    from rich.console import Group
    from rich.live import Live

    console = terminal.out()
    ascii_only = console.options.ascii_only

    def drawn(status: GatewayStatus) -> Group:
        table = status_table([_Look(one, []) for one in status.servers], width=console.width, ascii_only=ascii_only)
        return Group(table, terminal.text(summary_of(status), "dim"))

    with Live(drawn(first), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(drawn(look()), refresh=True)


class _Look(NamedTuple):
    """One server at one moment."""

    status: ServerStatus
    round_trips: list[float | None]
    """The last ones, in seconds; None for a question without an answer."""


def _show_once(looks: list[_Look], servers: MCPConfig, options: Options) -> None:
    if options.json:
        terminal.print_json(_document(looks))
    elif looks:
        terminal.show(status_table(looks, width=terminal.out().width))
    else:
        say_that_there_are_none(servers, options)


def _watch_live(manager: MCPClientManager, monitor: PingMonitor, interval: float) -> None:
    from rich.live import Live

    console = terminal.out()
    ascii_only = console.options.ascii_only

    def table() -> Table:
        return status_table(_looks(manager, monitor), width=console.width, live=True, ascii_only=ascii_only)

    # Drawn anew in one write when something was looked at, and never in between: nothing flickers.
    with Live(table(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(table(), refresh=True)


def _looks(manager: MCPClientManager, monitor: PingMonitor) -> list[_Look]:
    """In the order of the configuration."""
    return [_Look(status, monitor.of(status.name)) for status in manager.status()]


def _document(looks: list[_Look]) -> dict[str, Any]:
    import msgspec

    return {"servers": [{**msgspec.to_builtins(look.status), "round_trips": look.round_trips} for look in looks]}
