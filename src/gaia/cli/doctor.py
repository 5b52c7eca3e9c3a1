"""`gaia mcp doctor`: why a server does not work, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.command_errors import FAILED
from gaia.cli.listing import say_that_there_are_none
from gaia.cli.options import ConfigOption, DebugOption, JsonOption, Options, TraceOption, TrustOption
from gaia.cli.rendering import check_table
from gaia.cli.servers import complete_name, entry_of
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.doctor import Diagnosis

__all__ = ["doctor"]

_SUMMARIES = {
    "ok": ("works.", "bold green"),
    "warn": ("works, with warnings.", "bold yellow"),
    "fail": ("does not work.", "bold red"),
}


def doctor(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="The server; all if left out.", autocompletion=complete_name)
    ] = None,
    trust: TrustOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    trace: TraceOption = None,
    debug: DebugOption = False,
) -> None:
    """Find out why a server does not work: configuration, program, start, handshake, tools, latency.

    Each check has a verdict and, where something is wrong, what to do about it. Without a name all servers are
    examined, and tools whose names they share are found. The exit status is 1 if a check fails; warnings do not count.
    """
    from gaia.mcp.doctor import Verdict, diagnose_all

    options = Options.of(ctx, config, as_json, debug, trust, trace)
    servers = load_to_start(options)
    chosen = servers.get_servers() if name is None else {name: entry_of(servers, name)}
    if not chosen and not options.json:
        say_that_there_are_none(servers)
        return
    with _progress(options) as report:
        found = diagnose_all(chosen, report)
    failed = any(diagnosis.verdict is Verdict.FAIL for diagnosis in found)
    if options.json:
        terminal.print_json({"ok": not failed, "servers": [_document(diagnosis) for diagnosis in found]})
    else:
        for number, diagnosis in enumerate(found):
            if number:
                terminal.show()
            _show(diagnosis)
    if failed:
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def _progress(options: Options) -> Iterator[Callable[[str, Any], None] | None]:
    """What has been checked last, on standard error, if somebody looks."""
    console = terminal.err()
    if options.json or options.debug or not console.is_terminal:
        yield None
        return
    with console.status(terminal.text("Examining …")) as status:

        def report(name: str, check: Any) -> None:
            status.update(terminal.text(f"Examining {terminal.one_line(name)}: {check.name} {check.verdict} …"))

        yield report


def _show(diagnosis: Diagnosis) -> None:
    words, style = _SUMMARIES[diagnosis.verdict]
    terminal.show(terminal.text(f"{terminal.one_line(diagnosis.server)} {words}", style))
    terminal.show(check_table(diagnosis.checks))


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(diagnosis)
    return {"server": document["server"], "verdict": diagnosis.verdict, "checks": document["checks"]}
