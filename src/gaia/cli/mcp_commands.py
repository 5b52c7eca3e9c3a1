"""The group `gaia mcp`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer

from gaia.cli.demo import demo
from gaia.cli.options import ConfigOption, DebugOption, JsonOption, Options

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def mcp(
    ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Look after the configured MCP servers, and call their tools."""
    Options.of(ctx, config, as_json, debug)


def _add(name: str, command: Callable[..., None], *examples: str) -> None:
    # After a backspace on a line of its own, typer does not refill the paragraph.
    lines = [inspect.getdoc(command) or "", "", "\b", "Examples:", *(f"  {example}" for example in examples)]
    app.command(name, help="\n".join(lines))(command)


_add("demo", demo, "gaia mcp demo", "gaia mcp demo --json")
