"""The `gaia` command, and the groups `gaia mcp` and `gaia api`.

A command's module is imported when the command runs or when the help lists it, so that long-running servers do not load
the modules of other commands.
"""

from __future__ import annotations

import importlib
import io
import logging
import signal
import sys
import traceback
from collections import UserDict
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from gaia import __version__
from gaia.cli import terminal, time_limit
from gaia.cli.options import Options, add_command, with_options
from gaia.cli.terminal import FAILED, INTERRUPTED, USAGE, CommandFailed
from gaia.cli.time_limit import OutOfTime
from gaia.mcp.errors import ConfigError, MCPError
from gaia.runtime.untrusted_text import clean


class LazyGroup(TyperGroup):
    locations: ClassVar[Mapping[str, str]]
    """Maps each command to ``module:function``, in the order of the help. An ``app`` is a group. Subclasses set it."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.commands = _Commands(self.locations)


class _Commands(UserDict[str, Any]):
    """The commands of one group by name. Each is a ``module:function`` until its first use."""

    def __getitem__(self, name: str) -> Any:
        known = super().__getitem__(name)
        if isinstance(known, str):
            module, _, function = known.partition(":")
            found = getattr(importlib.import_module(module), function)
            if not isinstance(found, typer.Typer):
                command, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
                add_command(found, name, command)
            self[name] = known = typer.main.get_command(found)
            known.name = name
        return known


class McpGroup(LazyGroup):
    locations: ClassVar[Mapping[str, str]] = {
        "add": "gaia.cli.configuring:add_app",
        "remove": "gaia.cli.configuring:remove",
        "enable": "gaia.cli.configuring:enable",
        "disable": "gaia.cli.configuring:disable",
        "list": "gaia.cli.listing:list_servers",
        "placement": "gaia.cli.placement:placement",
        "tools": "gaia.cli.listing:list_tools",
        "call": "gaia.cli.calling:call",
        "resources": "gaia.cli.calling:list_resources",
        "read": "gaia.cli.calling:read_resource",
        "prompts": "gaia.cli.calling:list_prompts",
        "prompt": "gaia.cli.calling:get_prompt",
        "login": "gaia.cli.authorizing:login",
        "logout": "gaia.cli.authorizing:logout",
        "approve": "gaia.cli.approving:approve",
        "trust": "gaia.cli.trusting:trust_project",
        "test-client": "gaia.cli.doctor:test_client",
        "doctor": "gaia.cli.doctor:doctor",
        "watch": "gaia.cli.watch:watch",
        "dashboard": "gaia.cli.watch:dashboard",
        "import": "gaia.cli.importing:import_servers",
        "serve": "gaia.cli.serving:serve",
        "gateway": "gaia.cli.gateway:app",
        "bridge": "gaia.cli.serving:bridge",
        "bench": "gaia.cli.bench:bench",
        "demo": "gaia.cli.demo:demo",
    }


class RootGroup(LazyGroup):
    locations: ClassVar[Mapping[str, str]] = {"mcp": "gaia.cli.main:mcp_app", "api": "gaia.cli.serving:app"}

    def invoke(self, ctx: Any) -> Any:
        options = ctx.ensure_object(Options)
        try:
            return super().invoke(ctx)
        except (CommandFailed, MCPError) as error:
            raise typer.Exit(report(error, options)) from error
        except OutOfTime as error:
            raise typer.Exit(report(CommandFailed(str(error), error_type="timeout"), options)) from error
        except KeyboardInterrupt as error:
            # The servers have stopped by now. A second Ctrl-C ends the process at once.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise typer.Exit(INTERRUPTED) from error
        finally:
            time_limit.end()


def report(error: CommandFailed | MCPError, options: Options) -> int:
    if options.debug:
        # Messages may contain text from a server.
        sys.stderr.write(clean("".join(traceback.format_exception(error))))
    if not isinstance(error, CommandFailed):
        exit_code = USAGE if isinstance(error, ConfigError) else FAILED
        error = CommandFailed(error.message, exit_code=exit_code, error_type=error.error_type)
    terminal.note(f"Error: {error.message}", "red")
    document: dict[str, Any] = {"error": error.message, **error.facts}
    if error.hint is not None:
        document["hint"] = error.hint
        terminal.note(error.hint)
    if options.json:
        terminal.print_json(document)
    return error.exit_code


# Plain help is twice as fast as rich's panels, and examples in it need no escaping.
app = typer.Typer(cls=RootGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
mcp_app = typer.Typer(cls=McpGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@mcp_app.callback()
@with_options("trust", "config", "as_json", "trace", "debug")
def mcp(options: Options) -> None:
    """Look after the configured MCP servers, and call their tools."""


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
    for stream in (sys.stdout, sys.stderr):
        # Characters that the stream's encoding lacks become question marks, and the command continues.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Commands print their own errors. --debug also shows the log.
    logging.getLogger("gaia").addHandler(logging.NullHandler())
    try:
        app(prog_name="gaia")
    except SystemExit as ended:
        time_limit.leave(ended.code)
        raise


if __name__ == "__main__":
    main()
