"""`gaia mcp dashboard`: a local web page about all servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from gaia.cli.options import Options, with_options
from gaia.cli.serve_options import AllowHostOption, HostOption, PortOption, announce, run_server
from gaia.cli.trusting import load_to_start
from gaia.serving.options import HttpOptions

__all__ = ["dashboard"]

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
    host: HostOption = HttpOptions.host,
    port: PortOption = 8484,
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    open_page: OpenOption = False,
) -> None:
    """Start all servers that are not disabled, and show them on a local web page until Ctrl-C, which stops them.

    Shows states and restarts, each tool call with its spans and log events, what servers write on standard error, and
    their tools with a form to try them. The URL on standard error contains a token: who has it can call the tools.
    """
    servers = load_to_start(options)
    http = HttpOptions(host, port, token, tuple(allow_host or ()), shutdown_grace=_GRACE)

    def run() -> None:
        import logging

        # The page shows every event; standard error goes on showing problems only.
        for handler in logging.getLogger("gaia").handlers:
            handler.setLevel(logging.DEBUG if options.debug else logging.WARNING)
        from gaia.dashboard import Dashboard
        from gaia.mcp.client import MCPClientManager

        with MCPClientManager(servers, debug=options.debug) as manager:
            page = Dashboard(manager, http, log_level=logging.DEBUG)
            # Before the servers are started, so that nothing of it is missed.
            page.watch()
            manager.load_from_config(timeout=0)
            page.run(_tell(open_page))

    run_server(run, options, unsafe_hint=_UNSAFE_HINT)


def _tell(open_page: bool) -> Callable[[str], None]:
    say = announce("Dashboard")

    def started(url: str) -> None:
        say(url)
        if open_page:
            import webbrowser

            webbrowser.open(url)

    return started
