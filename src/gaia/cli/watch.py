"""`gaia mcp watch` and `gaia mcp dashboard`: show all servers live, on the terminal or on a local web page."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from logging import StreamHandler
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import status_table
from gaia.cli.running_gateway import TokenOption, UrlArgument, fetch_status, summary_of
from gaia.cli.servers import say_that_there_are_none, waiting_for
from gaia.cli.serving import AllowHostOption, HostOption, PortOption, announce, run_server
from gaia.cli.trusting import load_to_start
from gaia.serving.options import HttpOptions

if TYPE_CHECKING:
    from rich.console import Console, Group

    from gaia.dashboard.servers import GatewayWatch
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.ping import PingMonitor
    from gaia.mcp.supervision.status import ServerStatus

_FIRST_SECONDS = 2.0


@with_options("trust", "config", "as_json", "trace", "debug")
def watch(
    options: Options,
    url: UrlArgument = None,
    once: Annotated[bool, Option("--once", help="Print one table when all have started, and exit.")] = False,
    interval: Annotated[
        float, Option("--interval", min=0.1, max=3600, metavar="SECONDS", help="Time between two looks.")
    ] = 0.5,
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


class _Snapshot(NamedTuple):
    document: dict[str, Any]
    servers: Sequence[tuple[ServerStatus, Sequence[float | None]]]
    """Each server with its last round trips in seconds; None stands for an unanswered ping."""
    summary: str | None


def _look_at(manager: MCPClientManager, monitor: PingMonitor) -> _Snapshot:
    import msgspec

    found = [(status, monitor.of(status.name)) for status in manager.status()]
    rows = [{**msgspec.to_builtins(status), "round_trips": round_trips} for status, round_trips in found]
    return _Snapshot({"servers": rows}, found, None)


def _look_at_gateway(url: str, token: str | None) -> _Snapshot:
    status = fetch_status(url, token)
    return _Snapshot(status.to_builtins(), [(server, []) for server in status.servers], summary_of(status))


def _show(look: Callable[[], _Snapshot], interval: float, options: Options, *, once: bool) -> None:
    found = look()
    console = terminal.out()
    if options.json and once:
        terminal.print_json(found.document)
    elif once:
        terminal.show(status_table(found.servers, width=console.width))
        if found.summary is not None:
            terminal.say(found.summary, "dim")
    elif options.json:
        while True:
            print(json.dumps(found.document), flush=True)
            time.sleep(interval)
            found = look()
    else:
        from rich.live import Live

        # Each look is drawn in one write, so nothing flickers.
        with Live(_drawn(found, console), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_drawn(look(), console), refresh=True)


def _drawn(found: _Snapshot, console: Console) -> Group:
    from rich.console import Group

    ascii_only, live = console.options.ascii_only, found.summary is None
    table = status_table(found.servers, width=console.width, live=live, ascii_only=ascii_only)
    return Group(table) if found.summary is None else Group(table, terminal.text(found.summary, "dim"))


_GRACE = 1.0
_UNSAFE_HINT = "Leave --token (or GAIA_DASHBOARD_TOKEN) out to have a token made up."


@with_options("trust", "config", "trace", "debug")
def dashboard(
    options: Options,
    url: UrlArgument = None,
    host: HostOption = HttpOptions.host,
    port: PortOption = 8484,
    token: Annotated[
        str | None,
        Option(
            envvar="GAIA_DASHBOARD_TOKEN",
            help="What the page is opened with; made up by default. Better set the variable.",
        ),
    ] = None,
    allow_host: AllowHostOption = None,
    open_page: Annotated[bool, Option("--open", help="Open the page in the web browser.")] = False,
    gateway_token: TokenOption = None,
) -> None:
    """Start all servers that are not disabled, and show them on a local web page until Ctrl-C, which stops them.

    Shows states and restarts, each tool call with its spans and log events, what servers write on standard error, and
    their tools, resources and prompts with forms to try them; servers can be restarted and stopped there. The URL on
    standard error contains a token: who has it can do all of that.

    With the URL of a gateway, the page is about that: its servers, clients, sessions and limits. None is started or
    stopped.

    Examples:
      gaia mcp dashboard
      gaia mcp dashboard --port 0 --open
      gaia mcp dashboard http://127.0.0.1:8765/mcp
    """
    http = HttpOptions(host, port, token, tuple(allow_host or ()), shutdown_grace=_GRACE)
    servers = load_to_start(options) if url is None else None

    def run() -> None:
        from gaia.dashboard import Dashboard
        from gaia.mcp.client import MCPClientManager

        with contextlib.ExitStack() as stack:
            if url is None:
                # The page shows every event, and standard error only problems.
                for handler in logging.getLogger("gaia").handlers:
                    handler.setLevel(logging.DEBUG if options.debug else logging.WARNING)
                manager = stack.enter_context(MCPClientManager(servers, debug=options.debug))
                page = Dashboard(manager, http, log_level=logging.DEBUG)
            else:
                manager, watch = stack.enter_context(_watched_gateway(url, gateway_token))
                page = Dashboard(manager, http, log_level=logging.WARNING, gateway=watch)
            # Watch before the servers start, so that the page misses nothing.
            page.watch()
            manager.load_from_config(timeout=0)
            with contextlib.ExitStack() as shown:
                page.run(lambda address: _tell(address, open_page, shown))

    run_server(run, options, unsafe_hint=_UNSAFE_HINT)


@contextlib.contextmanager
def _watched_gateway(url: str, token: str | None) -> Iterator[tuple[MCPClientManager, GatewayWatch]]:
    from gaia.dashboard.servers import GatewayWatch
    from gaia.mcp.client import MCPClientManager

    first = fetch_status(url, token)
    endpoint = f"{url.partition('/mcp')[0].rstrip('/')}/mcp"

    def entry(name: str) -> dict[str, Any]:
        headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
        return {"url": f"{endpoint}/{name}", **headers}

    with MCPClientManager({server.name: entry(server.name) for server in first.servers}) as manager:
        yield manager, GatewayWatch(lambda: fetch_status(url, token), entry, manager, first)


def _tell(url: str, open_page: bool, shown: contextlib.ExitStack) -> None:
    """Print the page's URL. On a terminal it stays the last line, below the log, until `shown` is closed."""
    console = terminal.err()
    if console.is_terminal and not console.is_dumb_terminal:
        shown.enter_context(_last_line(console, f"Dashboard: {url}\nCtrl-C stops it and all servers."))
    else:
        announce("Dashboard")(url)
    if open_page:
        webbrowser.open(url)


@contextlib.contextmanager
def _last_line(console: Console, text: str) -> Iterator[None]:
    from rich.live import Live

    # The live display is redrawn only when standard error is written to, and the new text appears above it.
    with Live(terminal.text(text), console=console, auto_refresh=False, redirect_stdout=False):
        handlers = [handler for handler in logging.getLogger("gaia").handlers if isinstance(handler, StreamHandler)]
        streams = [handler.setStream(sys.stderr) for handler in handlers]
        try:
            yield
        finally:
            for handler, stream in zip(handlers, streams, strict=True):
                if stream is not None:
                    handler.setStream(stream)
