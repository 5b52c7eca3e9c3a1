"""From the name of a server on the command line to a client that is connected to it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal, time_limit
from gaia.cli.options import Options
from gaia.cli.questions import Questions
from gaia.cli.terminal import CommandFailed, unknown_name
from gaia.cli.time_limit import OutOfTime
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from gaia.mcp.client.config import MCPConfig

_PLAIN = re.compile(r"[\w][\w.@:+-]*")


def files_of(config: MCPConfig) -> str:
    """The files that were read, to say that something is in none of them."""
    files = (config.config_file, config.load_report["global"]["path"])
    return " or ".join(str(file) for file in dict.fromkeys(files) if file is not None)


def entry_of(config: MCPConfig, name: str) -> Any:
    """The entry of the server `name`, which may be of any type if it is one of `MCPConfig.problems`.

    Raises CommandFailed, listing the names that exist.
    """
    entries = config.get_entries()
    if name not in entries:
        raise unknown_name("server", name, entries, place=f" in {files_of(config)}")
    return entries[name]


def make_client(
    name: str, servers: MCPConfig, options: Options, questions: Questions | None = None, **keys: Any
) -> MCPClient:
    """A client of a configured server that is not connected yet; `keys` count instead of those of its entry.

    `questions` answer what the server asks; without them it cannot ask.

    Raises ConfigError for an entry that cannot be used, and CommandFailed if there is none.
    """
    from gaia.mcp.client import MCPClient
    from gaia.mcp.errors import ConfigError

    entry = entry_of(servers, name)
    if (problem := servers.problems.get(name)) is not None:
        raise ConfigError(problem)
    try:
        return MCPClient.from_config(
            name,
            {**entry, **keys},
            debug=options.debug,
            pins=servers.pins_of(name),
            on_elicitation=None if questions is None else questions.on_elicitation,
        )
    except ValueError as error:
        raise ConfigError(f"{error}; its entry is in {servers.source_of(name)}") from error


def timeout_of(name: str, servers: MCPConfig) -> float:
    """How long one call of a configured server may take, in seconds."""
    from gaia.mcp.config.server_config import ServerConfig

    return ServerConfig.from_dict(name, servers.get_server(name)).timeout


@contextlib.contextmanager
def connected(
    name: str,
    options: Options,
    servers: MCPConfig | None = None,
    questions: Questions | None = None,
    **keys: Any,
) -> Iterator[MCPClient]:
    """The client of a configured server, connected; on leaving, however that is, the server has been stopped.

    `servers` are loaded if they are not given; `questions` and `keys` are as for `make_client`.

    A server that is named is started even if it is disabled. Raises CommandFailed if it cannot be started.
    """
    # A command that is over soon needs no process that waits for a loss.
    client = make_client(name, servers or load_to_start(options), options, questions, standby=False, **keys)
    try:
        try:
            with waiting_for(f"Starting {name}", options):
                ready = client.connect()
        except OutOfTime as error:
            raise CommandFailed(
                f"server {name!r} was not ready within {error.seconds:g} s",
                hint=f"Give it longer with --timeout; `{options.command('test-client', name)}` shows where it hangs.",
                error_type="timeout",
            ) from error
        if not ready:
            raise CommandFailed(
                f"server {name!r} could not be started: {client.last_error}",
                hint=f"`{options.command('test-client', name)}` shows where it fails.",
                error_type="server_unavailable",
            )
        yield client
    finally:
        with time_limit.closing():
            client.disconnect()


@contextlib.contextmanager
def waiting_for(what: str, options: Options) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something goes on; yields a function that tells what it is from then on."""
    console = terminal.err()
    if options.json or options.debug or not console.is_terminal:
        yield lambda _: None
        return
    with console.status(terminal.text(f"{one_line(what)} …")) as status:
        yield lambda what: status.update(terminal.text(f"{one_line(what)} …"))


def complete_name(incomplete: str) -> list[str]:
    """For the shell's completion: the configured servers that begin so."""
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.errors import ConfigError

    # Completion has nowhere to show an error or a warning; the command itself will.
    with contextlib.suppress(ConfigError):
        # Shells insert a name as it is, so it must not mean anything to them.
        names = [name for name in MCPConfig().get_entries() if _PLAIN.fullmatch(name)]
        return [name for name in names if name.startswith(incomplete)]
    return []


ServerName = Annotated[str, typer.Argument(help="The server.", autocompletion=complete_name)]
