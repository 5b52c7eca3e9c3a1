"""Options that several commands share. Those in `Options` may stand before or after the name of a command."""

from __future__ import annotations

import inspect
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

from gaia.cli import terminal, time_limit

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig

ConfigOption = Annotated[
    Path | None, Option("--config", metavar="PATH", help="Use this configuration file and no other.")
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON for programs.")]
DebugOption = Annotated[bool, Option("--debug", help="Log what happens to standard error, and show tracebacks.")]
TrustOption = Annotated[
    bool, Option("--trust", help="Trust the mcp_servers.json of this folder, as `gaia mcp trust --yes` does.")
]
TraceOption = Annotated[
    str | None,
    Option("--trace", metavar="console|otlp|PATH.jsonl", help="Record spans, and send them there (extra otel)."),
]
CallTimeoutOption = Annotated[
    float | None, Option("--timeout", min=0.001, metavar="SECONDS", help="How long one call may take.")
]
TimeoutOption = Annotated[
    float | None,
    Option("--timeout", min=0.001, metavar="SECONDS", help="How long all of it may take, the server's start too."),
]

_EXPORT_SECONDS = 2.0


@dataclass
class Options:
    """The option values of all levels of the command line. `add` is called for each group and for the command."""

    config_file: Path | None = None
    json: bool = False
    debug: bool = False
    trust: bool = False
    trace: str | None = None
    started: float = field(default_factory=time.monotonic)
    given: frozenset[str] = frozenset()
    """Parameters that came from the command line, not from the environment."""
    subcommand: str | None = None
    verbatim: bool = False
    """Whether the command's words stand after ``--`` and are taken literally."""

    def add(
        self,
        trust: TrustOption = False,
        config: ConfigOption = None,
        as_json: JsonOption = False,
        trace: TraceOption = None,
        debug: DebugOption = False,
        timeout: TimeoutOption = None,
        new_config: ConfigOption = None,
    ) -> None:
        """Add the options of another level, and start the `timeout`. The innermost ``--config`` counts.

        `new_config` is ``--config`` of a command that may create the file. Raises ConfigError for an unusable `trace`.
        """
        self.config_file = new_config or config or self.config_file
        self.json |= as_json
        self.trust |= trust
        time_limit.begin(timeout, self.started)
        if debug and not self.debug:
            import logging

            from gaia.runtime import log

            self.debug = True
            log.configure(level=logging.DEBUG)
        if trace is not None and self.trace is None:
            from gaia import telemetry

            self.trace = trace
            # The SDK sends the remaining spans when the interpreter exits. Without a limit, the command would wait
            # there for a collector that is not running.
            limit = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else _EXPORT_SECONDS
            telemetry.configure(trace, export_timeout=limit)

    def command(self, *words: str) -> str:
        """A ``gaia mcp`` command for the user to copy, quoted for a shell, with this command's ``--config``."""
        config = [] if self.config_file is None else ["--config", str(self.config_file)]
        command, *names = words
        # A name that begins with a dash would be read as an option.
        end = ["--"] if any(name.startswith("-") for name in names) else []
        return shlex.join(["gaia", "mcp", command, *config, *end, *names])

    def load_config(self, *, create: bool = False) -> MCPConfig:
        """Read the configured servers, and print warnings about likely mistakes.

        Raises ConfigError for a file that cannot be parsed, and for a missing named file unless this command may
        `create` it. Commands that start servers use `gaia.cli.trusting.load_to_start`.
        """
        from gaia.mcp.client.config import MCPConfig

        servers = MCPConfig(self.config_file, create=create)
        say_warnings(servers)
        return servers


def say_warnings(servers: MCPConfig) -> None:
    for warning in servers.warnings:
        terminal.note(f"Warning: {warning}", "yellow")


def add_command(
    group: typer.Typer, name: str, command: Callable[..., None], cls: type[TyperCommand] | None = None
) -> None:
    group.command(name, cls=cls, **help_of(command))(command)


def help_of(command: Callable[..., None]) -> dict[str, Any]:
    """A command's help is its docstring, whose first line is shown uncut in the list of commands."""
    text = inspect.getdoc(command) or ""
    # Click does not wrap a paragraph after a line with only a backspace.
    return {"help": text.replace("\n\nExamples:\n", "\n\n\b\nExamples:\n"), "short_help": text.partition("\n")[0]}


def with_options(*shared: str, **parts: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass the shared options to a command as its parameter `options`. `shared` names parameters of `Options.add`.

    `parts` maps other parameters of the command to functions that make their values. The parameters of these functions
    become options of the command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        makers = {name: list(_parameters(part).values()) for name, part in parts.items()}

        def run(ctx: typer.Context, **given: Any) -> None:
            options = ctx.ensure_object(Options)
            sources = {name: ctx.get_parameter_source(name) for name in given}
            options.given = frozenset(name for name in given if getattr(sources[name], "name", "") == "COMMANDLINE")
            options.subcommand = ctx.invoked_subcommand
            options.add(**{name: given.pop(name) for name in shared})
            file = options.config_file
            if "config" in shared and options.subcommand is None and file is not None and not file.exists():
                # An error even if the command does not read the file.
                from gaia.mcp.config.config_files import load_named

                load_named(file, create=False)
            made = {
                name: parts[name](**{parameter.name: given.pop(parameter.name) for parameter in taken})
                for name, taken in makers.items()
            }
            command(options=options, **made, **given)

        own = [each for name, each in _parameters(command).items() if name != "options"]
        added = [_parameters(Options.add)[name] for name in shared]
        run.__doc__ = command.__doc__
        run.__name__ = command.__name__
        # Typer reads the options from the signature.
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        taken = [parameter for each in own for parameter in makers.get(each.name, [each])]
        run.__signature__ = inspect.Signature([context, *taken, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters
    return {name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in found.items()}
