"""Shared by the commands that serve over HTTP: options, loading agents, and error messages."""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Set
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from gaia.cli.options import Options
from gaia.cli.terminal import CommandFailed, usage_error
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
"""A name, an IPv4 address, or an IPv6 address with or without brackets."""

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
    """The options of the HTTP server from the command line."""
    hosts, origins = tuple(allow_host or ()), tuple(allow_origin or ())
    return HttpOptions(host, port, token, hosts, origins, allow_anonymous, max_body=max_body, shutdown_grace=grace)


HTTP_ONLY = frozenset({"host", "port", "token", "allow_host", "allow_origin", "allow_anonymous", "grace"})
"""Parameters of `http_options` without effect for a server on standard input and output."""


def refuse_options(names: Set[str], options: Options, why: str, hint: str) -> None:
    """Raise CommandFailed if parameters of these names are on the command line, where they have no effect."""
    if without_effect := sorted(names & options.given):
        words = ", ".join(f"--{name.replace('_', '-')}" for name in without_effect)
        raise usage_error(f"{words}: {why}", hint)


def load(target: str, base: type[AgentT]) -> AgentT:
    from gaia.serving.loading import AgentNotLoaded, load_agent

    try:
        return load_agent(target, base)
    except AgentNotLoaded as error:
        raise usage_error(str(error), error_type="agent_not_loaded") from error
    except Exception as error:
        # The agent's module and constructor may raise anything.
        raise CommandFailed(
            f"{target} cannot be made: {type(error).__name__}: {error}", hint="--debug says more."
        ) from error


def run_server(run: Callable[[], None], options: Options, unsafe_hint: str = _UNSAFE_HINT) -> None:
    """Run a server, and turn errors that the user can fix into messages; `unsafe_hint` goes with `UnsafeOptions`."""
    import logging

    from gaia.runtime import log
    from gaia.serving.loading import ServingUnavailable

    if not options.debug:
        log.configure(level=logging.WARNING)
    try:
        run()
    except UnsafeOptions as error:
        raise usage_error(str(error), unsafe_hint, "unsafe_options") from error
    except ServingUnavailable as error:
        raise usage_error(str(error), error_type="extra_missing") from error
    except OSError as error:
        # The error of an unknown name has another kind of number.
        hint = _NO_ADDRESS if isinstance(error, socket.gaierror) else _LISTEN_HINTS.get(error.errno or 0)
        raise CommandFailed(f"cannot listen: {error}", hint=hint, error_type="cannot_listen") from error


def announce(what: str) -> Callable[[str], None]:
    """A function that prints the server's URL on standard error. Programs wait for this line."""
    return lambda url: typer.echo(f"{what}: {url}", err=True)


_END_SECONDS = 2.0
"""Seconds at the end of the process for writing the remaining lines."""


class HandedOver(logging.Handler):
    """Writes log records to a descriptor on its own thread. Records beyond its bounds are dropped and counted.

    The reader of a pipe may stop reading. A blocked write must not delay an event loop, signal handlers or the end of
    the process, so no lock is held during a write, not even that of a stream.
    """

    def __init__(self, descriptor: int) -> None:
        from gaia.runtime.handover import Handover

        super().__init__()
        self._descriptor = descriptor
        self._handover = Handover("gaia-stderr", lambda _: None, self._dropped)

    def createLock(self) -> None:  # noqa: N802 - logging's name
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
        except Exception:  # noqa: BLE001 - what logging itself does
            self.handleError(record)
        else:
            self._handover.post(lambda: self._write(line), size=len(line))

    def wait(self, seconds: float) -> bool:
        """Wait until everything logged is written; False if it is not after so many seconds."""
        return self._handover.flush(seconds)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def _dropped(self, count: int) -> None:
        self._write(f"WARNING log_lines_dropped count={count}\n".encode())


def log_without_waiting() -> None:
    """Send all log records of this process to standard error, without waiting for its reader."""
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        # Standard error was replaced, for example by a test.
        return
    gaia = logging.getLogger("gaia")
    handler = HandedOver(sys.stderr.fileno())
    handler.setFormatter(next((each.formatter for each in gaia.handlers if each.formatter is not None), None))
    # Another handler below the root would write each event twice.
    gaia.handlers[:] = [logging.NullHandler()]
    logging.root.addHandler(handler)
    atexit.register(_end, handler)


def _end(handler: HandedOver) -> None:
    from gaia.runtime import log

    log.flush(_END_SECONDS)
    handler.wait(_END_SECONDS)
