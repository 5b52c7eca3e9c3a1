"""`gaia mcp watch`: all servers, live."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.listing import say_that_there_are_none
from gaia.cli.options import ConfigOption, DebugOption, JsonOption, Options, TrustOption
from gaia.cli.rendering import status_table
from gaia.cli.servers import waiting_for
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.supervision.status import ServerStatus

__all__ = ["watch"]

_INTERVAL = 0.5
"""Seconds between two looks."""


def watch(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one table when all have started, and exit.")] = False,
    trust: TrustOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start all servers that are not disabled, and watch them until Ctrl-C, which stops them.

    Shows for each its state, generation, restarts, calls in flight and queued, latencies and last error. With --json
    every look is one line with a JSON object. Where standard output is no terminal, it is --once.
    """
    from gaia.mcp.client import MCPClientManager

    options = Options.of(ctx, config, as_json, debug, trust)
    servers = load_to_start(options)
    with MCPClientManager(servers, debug=options.debug) as manager:
        if once or not (options.json or sys.stdout.isatty()):
            with waiting_for("Starting the servers", options):
                manager.load_from_config()
            if options.json:
                terminal.print_json(_document(manager))
            elif manager.status():
                terminal.show(status_table(_statuses(manager)))
            else:
                say_that_there_are_none(servers)
        elif options.json:
            # Who needs longer is shown as starting.
            manager.load_from_config(timeout=_INTERVAL)
            while True:
                print(json.dumps(_document(manager)), flush=True)
                time.sleep(_INTERVAL)
        else:
            # Who needs longer is shown as starting.
            manager.load_from_config(timeout=_INTERVAL)
            _watch_live(manager)


def _watch_live(manager: MCPClientManager) -> None:
    from rich.live import Live

    with Live(status_table(_statuses(manager), live=True), console=terminal.out(), auto_refresh=False) as live:
        while True:
            time.sleep(_INTERVAL)
            live.update(status_table(_statuses(manager), live=True), refresh=True)


def _statuses(manager: MCPClientManager) -> list[ServerStatus]:
    """In one order, whichever server is ready first."""
    order = list(manager.config.get_servers())
    return sorted(manager.status(), key=lambda status: order.index(status.name))


def _document(manager: MCPClientManager) -> dict[str, Any]:
    import msgspec

    return {"servers": msgspec.to_builtins(_statuses(manager))}
