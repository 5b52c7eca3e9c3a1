"""The options that all commands share, and that may stand before or after a command's name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig

__all__ = ["ConfigOption", "DebugOption", "JsonOption", "Options", "TimeoutOption", "TraceOption", "TrustOption"]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="PATH", help="Use this configuration file and no other.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Log what happens to standard error, and show tracebacks.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Trust the mcp_servers.json of this folder, as `gaia mcp trust --yes` does.")
]
TraceOption = Annotated[
    str | None,
    typer.Option("--trace", metavar="console|otlp|PATH.jsonl", help="Record spans, and send them there."),
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="How long one call may take.")
]

_EXPORT_SECONDS = 2.0
"""How long sending spans may take, attempts included."""


@dataclass
class Options:
    """What was asked for, at whichever level: `add` is called by the group and by the command."""

    config_file: Path | None = None
    json: bool = False
    debug: bool = False
    trust: bool = False
    trace: str | None = None

    @classmethod
    def of(
        cls,
        ctx: typer.Context,
        config: Path | None,
        as_json: bool,
        debug: bool,
        trust: bool = False,
        trace: str | None = None,
    ) -> Options:
        """The options of this invocation, with these added. The innermost ``--config`` counts.

        Raises ConfigError if spans cannot be sent to where `trace` says.
        """
        options = ctx.ensure_object(cls)
        options.config_file = config or options.config_file
        options.json |= as_json
        options.trust |= trust
        if debug and not options.debug:
            options.debug = True
            _log_everything()
        if trace is not None and options.trace is None:
            options.trace = trace
            _trace_to(trace)
        return options

    def load_config(self) -> MCPConfig:
        """The configured servers, to read or to change. Raises ConfigError for a file that cannot be understood.

        What starts servers uses `gaia.cli.trusting.load_to_start`.
        """
        from gaia.mcp.client.config import MCPConfig

        return MCPConfig(self.config_file)


def _trace_to(destination: str) -> None:
    from gaia import telemetry

    # What is still to be sent when the command ends is sent by the SDK, at the exit of the interpreter. Nobody wants
    # to wait there for a collector that is not running.
    timeout = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else _EXPORT_SECONDS
    telemetry.configure(destination, export_timeout=timeout)


def _log_everything() -> None:
    import logging

    from gaia import log

    log.configure(level=logging.DEBUG)
