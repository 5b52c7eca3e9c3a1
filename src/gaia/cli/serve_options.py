"""What the commands that serve over HTTP share: their options, loading agents, and failures told in words."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from gaia.cli.command_errors import USAGE, CommandFailed
from gaia.cli.options import Options
from gaia.serving.options import HttpOptions, UnsafeOptions

AgentT = TypeVar("AgentT")

HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]


def _hosts(given: list[str] | None) -> list[str] | None:
    for name in given or ():
        if not _HOST.fullmatch(name):
            raise typer.BadParameter(
                f"expected a host name without scheme, port and path, such as gw.example.com, got {name!r}"
            )
    return given


_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")
"""A name, an IPv4 address, or an IPv6 address, in brackets or not."""

AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Another host name of this server.", callback=_hosts),
]


def _origins(given: list[str] | None) -> list[str] | None:
    for origin in given or ():
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or not parts.netloc:
            raise typer.BadParameter(
                f"expected an origin as browsers send it, such as https://a.example, got {origin!r}"
            )
    return given


AllowOriginOption = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", metavar="ORIGIN", help="Web pages that may call.", callback=_origins),
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="How many calls run at once.")]

_NO_ADDRESS = "--host takes an address or a host name of this machine, such as 127.0.0.1; 0.0.0.0 means all of them."
_LISTEN_HINTS = {
    errno.EADDRINUSE: "Another program listens there; --port takes another one.",
    errno.EADDRNOTAVAIL: _NO_ADDRESS,
}

_UNSAFE_HINT = "See --token (or GAIA_SERVE_TOKEN) and --allow-anonymous."


def http_options(
    host: HostOption = HttpOptions.host,
    port: PortOption = HttpOptions.port,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="GAIA_SERVE_TOKEN", help="Bearer token that clients must send. Better set GAIA_SERVE_TOKEN."
        ),
    ] = None,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Listen beyond this machine without a token.")
    ] = False,
    max_body: Annotated[int, typer.Option(min=1024, metavar="BYTES", help="Largest request.")] = HttpOptions.max_body,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long calls may take to end when the server is told to.")
    ] = HttpOptions.shutdown_grace,
) -> HttpOptions:
    """What the command line says about the HTTP server."""
    hosts, origins = tuple(allow_host or ()), tuple(allow_origin or ())
    return HttpOptions(host, port, token, hosts, origins, allow_anonymous, max_body=max_body, shutdown_grace=grace)


HTTP_ONLY = frozenset({"host", "port", "token", "allow_host", "allow_origin", "allow_anonymous", "grace"})
"""The parameters of `http_options` that mean nothing to a server on standard input and output."""


def load(target: str, base: type[AgentT]) -> AgentT:
    """The agent that the command line names."""
    from gaia.serving.loading import AgentNotLoaded, load_agent

    try:
        return load_agent(target, base)
    except AgentNotLoaded as error:
        raise CommandFailed(str(error), exit_code=USAGE, error_type="agent_not_loaded") from error
    except Exception as error:
        # Whatever the agent's module and constructor do.
        raise CommandFailed(
            f"{target} cannot be made: {type(error).__name__}: {error}", hint="--debug says more."
        ) from error


def run_server(run: Callable[[], None], options: Options, unsafe_hint: str = _UNSAFE_HINT) -> None:
    """Run a server, with the failures that are the user's to mend told in words; `unsafe_hint` for `UnsafeOptions`."""
    import logging

    from gaia.runtime import log
    from gaia.serving.extra import ServingUnavailable

    if not options.debug:
        log.configure(level=logging.WARNING)
    try:
        run()
    except UnsafeOptions as error:
        raise CommandFailed(str(error), exit_code=USAGE, hint=unsafe_hint, error_type="unsafe_options") from error
    except ServingUnavailable as error:
        raise CommandFailed(str(error), exit_code=USAGE, error_type="extra_missing") from error
    except OSError as error:
        # The error of a name that is not found has a number of another kind.
        hint = _NO_ADDRESS if isinstance(error, socket.gaierror) else _LISTEN_HINTS.get(error.errno or 0)
        raise CommandFailed(f"cannot listen: {error}", hint=hint, error_type="cannot_listen") from error


def announce(what: str) -> Callable[[str], None]:
    """Says on standard error where the server is; programs wait for this line."""
    return lambda url: typer.echo(f"{what}: {url}", err=True)
