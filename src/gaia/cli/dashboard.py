"""`gaia mcp dashboard`: serves a local web page about all servers."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from logging import StreamHandler
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.running_gateway import UrlArgument, fetch_status
from gaia.cli.serving import AllowHostOption, HostOption, PortOption, announce, run_server
from gaia.cli.trusting import load_to_start
from gaia.serving.options import HttpOptions

if TYPE_CHECKING:
    from rich.console import Console

_GRACE = 1.0
_UNSAFE_HINT = "Leave --token (or GAIA_DASHBOARD_TOKEN) out to have a token made up."

TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="GAIA_DASHBOARD_TOKEN", help="What the page is opened with; made up by default. Better set the variable."
    ),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")]


@with_options("trust", "config", "trace", "debug")
def dashboard(
    options: Options,
    url: UrlArgument = None,
    host: HostOption = HttpOptions.host,
    port: PortOption = 8484,
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    open_page: OpenOption = False,
    gateway_token: Annotated[
        str | None, typer.Option(envvar="GAIA_GATEWAY_TOKEN", help="For the gateway. Better set GAIA_GATEWAY_TOKEN.")
    ] = None,
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

    if url is not None:
        run_server(lambda: _show_gateway(url, gateway_token, http, open_page), options, unsafe_hint=_UNSAFE_HINT)
        return
    servers = load_to_start(options)

    def run() -> None:
        # The page shows every event. Standard error shows problems only.
        for handler in logging.getLogger("gaia").handlers:
            handler.setLevel(logging.DEBUG if options.debug else logging.WARNING)
        from gaia.dashboard import Dashboard
        from gaia.mcp.client import MCPClientManager

        with MCPClientManager(servers, debug=options.debug) as manager:
            page = Dashboard(manager, http, log_level=logging.DEBUG)
            # Watch before the servers start, so that the page misses nothing.
            page.watch()
            manager.load_from_config(timeout=0)
            with contextlib.ExitStack() as shown:
                page.run(lambda url: _tell(url, open_page, shown))

    run_server(run, options, unsafe_hint=_UNSAFE_HINT)


def _show_gateway(url: str, token: str | None, http: HttpOptions, open_page: bool) -> None:
    from gaia.dashboard import Dashboard
    from gaia.dashboard.servers import GatewayWatch
    from gaia.mcp.client import MCPClientManager

    first = fetch_status(url, token)
    endpoint = f"{url.partition('/mcp')[0].rstrip('/')}/mcp"

    def entry(name: str) -> dict[str, Any]:
        headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
        return {"url": f"{endpoint}/{name}", **headers}

    with MCPClientManager({server.name: entry(server.name) for server in first.servers}) as manager:
        watch = GatewayWatch(lambda: fetch_status(url, token), entry, manager, first)
        page = Dashboard(manager, http, log_level=logging.WARNING, gateway=watch)
        page.watch()
        manager.load_from_config(timeout=0)
        with contextlib.ExitStack() as shown:
            page.run(lambda address: _tell(address, open_page, shown))


def _tell(url: str, open_page: bool, shown: contextlib.ExitStack) -> None:
    """Print the page's URL. On a terminal it stays the last line, below the log, until `shown` is closed."""
    console = terminal.err()
    if console.is_terminal and not console.is_dumb_terminal:
        shown.enter_context(_last_line(console, f"Dashboard: {url}\nCtrl-C stops it and all servers."))
    else:
        announce("Dashboard")(url)
    if open_page:
        import webbrowser

        webbrowser.open(url)


@contextlib.contextmanager
def _last_line(console: Console, text: str) -> Iterator[None]:
    from rich.live import Live

    # The live display is redrawn only when something is written to standard error, which then appears above it.
    with Live(terminal.text(text), console=console, auto_refresh=False, redirect_stdout=False):
        handlers = [handler for handler in logging.getLogger("gaia").handlers if isinstance(handler, StreamHandler)]
        streams = [handler.setStream(sys.stderr) for handler in handlers]
        try:
            yield
        finally:
            for handler, stream in zip(handlers, streams, strict=True):
                if stream is not None:
                    handler.setStream(stream)
