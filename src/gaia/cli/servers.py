"""Connects to the server that the command line names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from gaia.cli import terminal, time_limit
from gaia.cli.options import Options
from gaia.cli.questions import Questions
from gaia.cli.terminal import CommandFailed, unknown_name
from gaia.cli.time_limit import OutOfTime
from gaia.cli.trusting import load_to_start
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from gaia.mcp.client import MCPClient
    from gaia.mcp.client.config import MCPConfig

_PLAIN = re.compile(r"[\w][\w.@:+-]*")


def files_of(config: MCPConfig) -> str:
    files = (config.config_file, config.load_report["global"]["path"])
    return " or ".join(str(file) for file in dict.fromkeys(files) if file is not None)


def say_that_there_are_none(servers: MCPConfig, options: Options, console: Console | None = None) -> None:
    terminal.say(f"No servers are configured in {files_of(servers)}", console=console)
    terminal.say(f"Add one: {options.command('add', 'time', 'uvx mcp-server-time')}", "dim", console=console)


def entry_of(config: MCPConfig, name: str) -> Any:
    """The entry of `name`, of any type if it is in `MCPConfig.problems`. Raises CommandFailed with the known names."""
    entries = config.get_entries()
    if name not in entries:
        raise unknown_name("server", name, entries, place=f" in {files_of(config)}")
    return entries[name]


def make_client(
    name: str, servers: MCPConfig, options: Options, questions: Questions | None = None, **keys: Any
) -> MCPClient:
    """A client of a configured server, not connected yet. `keys` replace keys of the entry.

    `questions` answer the server's questions; without them it cannot ask. Raises ConfigError for an unusable entry, and
    CommandFailed for an unknown server.
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


@contextlib.contextmanager
def connected(
    name: str, options: Options, servers: MCPConfig | None = None, questions: Questions | None = None, **keys: Any
) -> Iterator[MCPClient]:
    """A connected client of a configured server, which is stopped when the context is left.

    `servers` are loaded if not given; `questions` and `keys` go to `make_client`. A disabled server is started too.
    Raises CommandFailed if the server cannot be started.
    """
    # A short command needs no stand-by process.
    client = make_client(name, servers or load_to_start(options), options, questions, standby=False, **keys)
    test = f"`{options.command('test-client', name)}` shows where it"
    try:
        try:
            with waiting_for(f"Starting {name}", options):
                ready = client.connect()
        except OutOfTime as error:
            message = f"server {name!r} was not ready within {error.seconds:g} s"
            hint = f"Give it longer with --timeout; {test} hangs."
            raise CommandFailed(message, hint=hint, error_type="timeout") from error
        if not ready:
            message = f"server {name!r} could not be started: {client.last_error}"
            raise CommandFailed(message, hint=f"{test} fails.", error_type="server_unavailable")
        yield client
    finally:
        with time_limit.closing():
            client.disconnect()


@contextlib.contextmanager
def waiting_for(what: str, options: Options) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that the command is busy. Yields a function that changes the text."""
    console = terminal.err()
    if options.json or options.debug or not console.is_terminal:
        yield lambda _: None
        return
    with console.status(terminal.text(f"{one_line(what)} …")) as status:
        yield lambda what: status.update(terminal.text(f"{one_line(what)} …"))


def complete_name(incomplete: str) -> list[str]:
    """Configured servers that begin with this text, for the shell's completion."""
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.errors import ConfigError

    # Completion cannot show errors or warnings. The command itself does.
    with contextlib.suppress(ConfigError):
        # Shells insert a name unquoted, so it must contain no special characters.
        return [name for name in MCPConfig().get_entries() if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
    return []


ServerName = Annotated[str, Argument(help="The server.", autocompletion=complete_name)]
