"""The `gaia` command."""

from __future__ import annotations

import io
import logging
import signal
import sys
from typing import Annotated, Any, ClassVar

import typer

from gaia import __version__
from gaia.cli import time_limit
from gaia.cli.command_errors import INTERRUPTED, CommandFailed, report
from gaia.cli.lazy_group import LazyGroup, LazySubgroup, Offers
from gaia.cli.options import Options
from gaia.cli.time_limit import OutOfTime
from gaia.mcp.errors import MCPError


class RootGroup(LazyGroup):
    """Turns what a command raises into an exit status and a sentence."""

    offers: ClassVar[Offers] = {"mcp": LazySubgroup("gaia.cli.mcp_commands"), "api": LazySubgroup("gaia.cli.api")}

    def invoke(self, ctx: Any) -> Any:
        options = ctx.ensure_object(Options)
        try:
            return super().invoke(ctx)
        except (CommandFailed, MCPError) as error:
            raise typer.Exit(report(error, options)) from error
        except OutOfTime as error:
            raise typer.Exit(report(CommandFailed(str(error), error_type="timeout"), options)) from error
        except KeyboardInterrupt as error:
            # The servers are stopped by now. A second Ctrl-C ends the process at once.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise typer.Exit(INTERRUPTED) from error
        finally:
            time_limit.end()


# Plain help is twice as fast as rich's panels, and examples in it need no escaping.
app = typer.Typer(cls=RootGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gaia {__version__}")
        raise typer.Exit


@app.callback()
def gaia(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """MCP servers under supervision, and their tools."""


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        # A stream that knows fewer characters than we write gets question marks, and the command goes on.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # A command says itself what went wrong; --debug shows the log too.
    logging.getLogger("gaia").addHandler(logging.NullHandler())
    try:
        app(prog_name="gaia")
    except SystemExit as ended:
        time_limit.leave(ended.code)
        raise


if __name__ == "__main__":
    main()
