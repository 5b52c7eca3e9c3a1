"""From the name of a server on the command line to a client that is connected to it."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gaia.cli import terminal
from gaia.cli.command_errors import CommandFailed, unknown_name
from gaia.cli.options import Options
from gaia.cli.trusting import load_to_start

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient
    from gaia.mcp.client.config import MCPConfig

__all__ = ["complete_name", "connected", "entry_of", "make_client", "waiting_for"]


_PLAIN = re.compile(r"[\w][\w.@:+-]*")


def entry_of(config: MCPConfig, name: str) -> Any:
    """The entry of the server `name`, which may be of any type if it is one of `MCPConfig.problems`.

    Raises CommandFailed, listing the names that exist.
    """
    entries = config.get_entries()
    if name not in entries:
        raise unknown_name("server", name, entries, place=f" in {config.config_file}")
    return entries[name]


def make_client(name: str, servers: MCPConfig, options: Options, **keys: Any) -> MCPClient:
    """A client of a configured server that is not connected yet; `keys` count instead of those of its entry.

    Raises ConfigError for an entry that cannot be used, and CommandFailed if there is none.
    """
    from gaia.mcp.client import MCPClient
    from gaia.mcp.client.pinning.lock_file import pins_of
    from gaia.mcp.errors import ConfigError

    entry = entry_of(servers, name)
    if (problem := servers.problems.get(name)) is not None:
        raise ConfigError(problem)
    try:
        return MCPClient.from_config(name, {**entry, **keys}, debug=options.debug, pins=pins_of(servers, name))
    except ValueError as error:
        raise ConfigError(f"{error}; its entry is in {servers.source_of(name)}") from error


@contextlib.contextmanager
def connected(name: str, options: Options, servers: MCPConfig | None = None, **keys: Any) -> Iterator[MCPClient]:
    """The client of a configured server, connected; on leaving, however that is, the server has been stopped.

    `servers` are loaded if they are not given; `keys` count instead of those of the server's entry.

    A server that is named is started even if it is disabled. Raises CommandFailed if it cannot be started.
    """
    client = make_client(name, servers or load_to_start(options), options, **keys)
    try:
        with waiting_for(f"Starting {name}", options):
            ready = client.connect()
        if not ready:
            raise CommandFailed(
                f"server {name!r} could not be started: {client.last_error}",
                hint=f"`gaia mcp test-client {shlex.quote(name)}` shows where it fails.",
                error_type="server_unavailable",
            )
        yield client
    finally:
        client.disconnect()


@contextlib.contextmanager
def waiting_for(what: str, options: Options) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something goes on; yields a function that tells what it is from then on."""
    console = terminal.err()
    if options.json or options.debug or not console.is_terminal:
        yield lambda _: None
        return
    with console.status(terminal.text(f"{what} …")) as status:
        yield lambda what: status.update(terminal.text(f"{what} …"))


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
