"""`gaia mcp list --placed` and `gaia mcp placement`: the servers that programs have placed on other machines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import plain_table
from gaia.cli.servers import ServerName, entry_of, waiting_for
from gaia.cli.terminal import FAILED, CommandFailed, usage_error
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.config.placement import Placement
    from gaia.mcp.placement.engine import Engine, PlacedServer

_ID_LENGTH = 12


@contextlib.contextmanager
def _engine_of(placement: Placement, options: Options) -> Iterator[Engine]:
    """Raises CommandFailed with what the engine says."""
    from gaia.mcp.errors import ConfigError, StartFailed
    from gaia.mcp.placement.engines import engine_for

    with waiting_for(f"Asking the engine {placement.engine}", options):
        try:
            with contextlib.closing(engine_for(placement)) as engine:
                yield engine
        except ConfigError as error:
            raise usage_error(error.message, error_type="not_installed") from error
        except StartFailed as error:
            raise CommandFailed(error.message, error_type="no_engine") from error


def list_placed(options: Options) -> None:
    """List what the engines of all configured servers know. Exit status 1 if one cannot tell."""
    found: list[tuple[str, PlacedServer]] = []
    problems = []
    # An engine that a project's file names runs ssh, or joins a cluster.
    for placement in _engines_of(load_to_start(options)):
        try:
            with _engine_of(placement, options) as engine:
                found += ((placement.engine, server) for server in engine.list())
        except CommandFailed as error:
            problems.append({"engine": placement.engine, "problem": error.message})
    if options.json:
        servers = [{"engine": engine, **_document(server)} for engine, server in found]
        terminal.print_json({"servers": servers, "problems": problems})
    else:
        if found:
            terminal.show(_table(found))
        elif not problems:
            terminal.say("No servers are placed by the engines of the configured servers")
            terminal.say('A server with "placement": {"engine": …} in its entry is placed when it is used.', "dim")
        for problem in problems:
            terminal.say(f"{problem['engine']}: {one_line(problem['problem'])}", "red")
    if problems:
        raise typer.Exit(FAILED)


def _engines_of(servers: MCPConfig) -> list[Placement]:
    """One placement for each engine and place that an entry names."""
    places: dict[tuple[object, ...], Placement] = {}
    for name in servers.get_entries():
        placement = _placement_of(name, servers)
        if placement is not None:
            where = (placement.address, placement.host, placement.user, placement.port, placement.namespace)
            places.setdefault((placement.engine, *where), placement)
    return list(places.values())


def _placement_of(name: str, servers: MCPConfig) -> Placement | None:
    from gaia.mcp.config.server_config import ServerConfig

    entry_of(servers, name)
    return None if name in servers.problems else ServerConfig.from_dict(name, servers.get_server(name)).placement


@with_options("trust", "config", "as_json", "debug")
def placement(
    options: Options,
    name: ServerName,
    stop: Annotated[
        bool, typer.Option("--stop", help="End it on its machine, also if programs use it: for detached servers.")
    ] = False,
) -> None:
    """Show where a server with a placement runs, which program started it there, and what its engine finds.

    If it does not run, the engine says whether it could be placed now. The exit status is 0 if it runs.

    Examples:
      gaia mcp placement browser
      gaia mcp placement browser --json
      gaia mcp placement browser --stop
    """
    wanted = _placement_of(name, load_to_start(options))
    if wanted is None:
        raise usage_error(f"{name!r} has no placement, so it runs on this machine", error_type="not_placed")
    with _engine_of(wanted, options) as engine:
        hosts = [host for host in engine.list() if host.name == (wanted.name or name)]
        if stop:
            _stop(engine, name, hosts, options)
            return
        finding = _finding(engine)
    if options.json:
        terminal.print_json({"server": name, "engine": wanted.engine, "hosts": list(map(_document, hosts)), **finding})
    else:
        if hosts:
            terminal.show(_table([(wanted.engine, host) for host in hosts]))
        else:
            terminal.say(f"No program has placed {one_line(name)}", "yellow")
        # While it runs, it may have the very place that the engine lacks for another one.
        if finding["found"] is not None or not hosts:
            terminal.say(one_line(finding["problem"] or f"{wanted.engine}: {finding['found']}"))
    if not hosts:
        raise typer.Exit(FAILED)


def _finding(engine: Engine) -> dict[str, str | None]:
    from gaia.mcp.errors import StartFailed

    try:
        return {"found": engine.look(), "problem": None}
    except StartFailed as error:
        return {"found": None, "problem": error.message}


def _stop(engine: Engine, name: str, hosts: Sequence[PlacedServer], options: Options) -> None:
    if not hosts:
        raise CommandFailed(f"no program has placed {name!r}", error_type="not_placed")
    if own := [host.started_by or "a program" for host in hosts if not host.is_shared]:
        raise usage_error(
            f"{name!r} belongs to a program that uses it, and ends with it: {', '.join(own)}",
            'Only servers with "lifetime": "detached" are ended by --stop.',
            "not_detached",
        )
    if left := [host.id for host in hosts if not engine.end(host.id)]:
        raise CommandFailed(f"{name!r} could not be stopped: {left[0]} is still there", error_type="not_ended")
    terminal.answer(options.json, {"server": name, "stopped": True}, f"Stopped {name}")


def _table(found: Sequence[tuple[str, PlacedServer]]) -> Any:
    table = plain_table("server", "engine", "node", "id", "started by", "shared", "age", right=("age",))
    for engine, host in found:
        cells = (host.name, engine, host.node, host.id[:_ID_LENGTH], host.started_by or "-")
        shared = "yes" if host.is_shared else "no"
        table.add_row(*(terminal.text(one_line(cell)) for cell in (*cells, shared, _age(host.age))))
    return table


def _document(host: PlacedServer) -> dict[str, Any]:
    import msgspec

    return dict(msgspec.to_builtins(host))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
