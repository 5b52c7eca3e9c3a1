"""`gaia mcp serve`, `gaia mcp bridge` and `gaia api serve`: serve agents over MCP or OpenAI's API.

The module also has the parts of every HTTP serving command: options, error messages, and a log that waits for no
reader.
"""

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
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer
from typer import Argument, BadParameter, Option

from gaia.cli.options import Options, add_command, with_options
from gaia.cli.terminal import USAGE, CommandFailed, usage_error
from gaia.serving.options import HttpOptions, UnsafeOptions

if TYPE_CHECKING:
    from gaia.agents.base import MCPAgent
    from gaia.agents.base.mcp_context import ServableAgent

AgentT = TypeVar("AgentT")


def each(holds: Callable[[str], object], expected: str) -> Callable[[list[str] | None], list[str] | None]:
    """A callback of an option that refuses values for which `holds` is false."""

    def check(given: list[str] | None) -> list[str] | None:
        for one in given or ():
            if not holds(one):
                raise BadParameter(f"expected {expected}, got {one!r}")
        return given

    return check


_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text == f"{parts.scheme}://{parts.netloc}"


_HOSTS = each(_HOST.fullmatch, "a host name without scheme, port and path, such as gw.example.com")
_ORIGINS = each(_is_origin, "an origin as browsers send it, such as https://a.example")

HostOption = Annotated[str, Option(help="Address to listen on.")]
PortOption = Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
AllowHostOption = Annotated[
    list[str] | None, Option("--allow-host", metavar="NAME", help="Another host name of this server.", callback=_HOSTS)
]
AllowOriginOption = Annotated[
    list[str] | None, Option("--allow-origin", metavar="ORIGIN", help="Web pages that may call.", callback=_ORIGINS)
]
MaxBodyOption = Annotated[int, Option(min=1024, metavar="BYTES", help="Largest request.")]
ThreadsOption = Annotated[int, Option(min=1, help="How many calls run at once.")]


def http_options(
    host: HostOption = HttpOptions.host,
    port: PortOption = HttpOptions.port,
    token: Annotated[
        str | None,
        Option(envvar="GAIA_SERVE_TOKEN", help="Bearer token that clients must send. Better set GAIA_SERVE_TOKEN."),
    ] = None,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    allow_anonymous: Annotated[
        bool, Option("--allow-anonymous", help="Listen beyond this machine without a token.")
    ] = False,
    max_body: MaxBodyOption = HttpOptions.max_body,
    grace: Annotated[
        float, Option(min=0, metavar="SECONDS", help="How long calls may take to end when the server is told to.")
    ] = HttpOptions.shutdown_grace,
) -> HttpOptions:
    hosts, origins = tuple(allow_host or ()), tuple(allow_origin or ())
    return HttpOptions(host, port, token, hosts, origins, allow_anonymous, max_body=max_body, shutdown_grace=grace)


_HTTP_ONLY = frozenset({"host", "port", "token", "allow_host", "allow_origin", "allow_anonymous", "grace"})
"""Parameters of `http_options` without effect on a server over stdio."""


class Transport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


TransportOption = Annotated[Transport, Option(help="How clients reach the agent.")]


@with_options("trace", "debug", http=http_options)
def serve(
    options: Options,
    target: Annotated[str, Argument(metavar="PACKAGE.MODULE:AGENT", help="The agent's class.")],
    *,
    transport: TransportOption = Transport.STDIO,
    http: HttpOptions,
    threads: ThreadsOption = 32,
) -> None:
    """Serve an agent to MCP clients, until the client goes away (stdio) or the process is told to end (HTTP).

    The class is looked for in the working directory too, and is called without arguments.

    Examples:
      gaia mcp serve my_package.agents:NotesAgent
      GAIA_SERVE_TOKEN=... gaia mcp serve my_package.agents:NotesAgent --transport http --port 8000
    """
    _run(lambda: load_mcp_agent(target), transport, http, threads, options)


@with_options("trace", "debug", http=http_options)
def bridge(
    options: Options,
    targets: Annotated[list[str], Argument(metavar="[NAMESPACE=]PACKAGE.MODULE:AGENT...", help="The agents' classes.")],
    *,
    transport: TransportOption = Transport.STDIO,
    http: HttpOptions,
    threads: ThreadsOption = 32,
) -> None:
    """Serve several agents to MCP clients at one endpoint: tools are named NAMESPACE_tool.

    A namespace that is not given is made of the class: code for CodeAgent.

    Examples:
      gaia mcp bridge my_package.agents:NotesAgent code=my_package.agents:CodeAgent
    """
    _run(lambda: _bridge(targets), transport, http, threads, options)


def _run(
    make: Callable[[], ServableAgent], transport: Transport, http: HttpOptions, threads: int, options: Options
) -> None:
    if transport is Transport.STDIO:
        why = "for a server over HTTP only, and this one would use standard input and output"
        refuse_options(_HTTP_ONLY, options, why, "Add --transport http, or leave this out.")

    def run() -> None:
        from gaia.serving.loading import require

        if transport is Transport.STDIO:
            require("mcp", "jsonschema")
            from gaia.mcp.server.stdio import serve as serve_stdio

            serve_stdio(make, max_line=http.max_body, max_threads=threads)
        else:
            require("mcp", "jsonschema", "uvicorn", "starlette", "httptools")
            from gaia.mcp.server.http import serve as serve_http

            http.check()
            serve_http(make(), http, announce("MCP endpoint"), max_threads=threads)

    run_server(run, options)


def _bridge(targets: list[str]) -> ServableAgent:
    from gaia.mcp.mcp_bridge import MCPBridge, namespace_of

    agents: dict[str, ServableAgent] = {}
    for target in targets:
        namespace, separator, rest = target.rpartition("=")
        agent = load_mcp_agent(rest)
        name = namespace if separator else namespace_of(agent)
        if name in agents:
            raise CommandFailed(
                f"two agents have the namespace {name!r}", exit_code=USAGE, hint="Write NAMESPACE=PACKAGE.MODULE:AGENT."
            )
        agents[name] = agent
    try:
        return MCPBridge(agents)
    except ValueError as error:
        raise CommandFailed(str(error), exit_code=USAGE) from error


def load_mcp_agent(target: str) -> MCPAgent:
    from gaia.agents.base import MCPAgent

    # Abstract for authors of agents; here it only states which class is accepted.
    return load(target, MCPAgent)  # type: ignore[type-abstract]


app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def api() -> None:
    """Serve agents as models behind OpenAI's API."""


@with_options("trace", "debug", http=http_options)
def serve_api(
    options: Options,
    targets: Annotated[list[str], Argument(metavar="PACKAGE.MODULE:AGENT...", help="The agents' classes.")],
    http: HttpOptions,
    threads: ThreadsOption = 32,
) -> None:
    """Serve agents as models: /v1/models and /v1/chat/completions, until the process is told to end.

    The classes are looked for in the working directory too, and are called without arguments.

    Examples:
      gaia api serve my_package.agents:NotesAgent
      GAIA_SERVE_TOKEN=... gaia api serve my_package.agents:NotesAgent my_package.agents:CodeAgent --port 8001
    """

    def run() -> None:
        from gaia.agents.base import ApiAgent
        from gaia.serving.loading import require

        require("starlette", "uvicorn", "httptools")
        from gaia.api.app import serve

        http.check()
        agents = [load(target, ApiAgent) for target in targets]  # type: ignore[type-abstract]
        names = [agent.get_model_id() for agent in agents]
        if len(set(names)) < len(names):
            raise CommandFailed(f"two agents are the same model: {', '.join(sorted(names))}", exit_code=USAGE)
        serve(agents, http, announce("API endpoint"), max_threads=threads)

    run_server(run, options)


add_command(app, "serve", serve_api)


def refuse_options(names: Set[str], options: Options, why: str, hint: str) -> None:
    """Raise CommandFailed if the command line has any of these parameters, which would have no effect."""
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


_NO_ADDRESS = "--host takes an address or a host name of this machine, such as 127.0.0.1; 0.0.0.0 means all of them."
_LISTEN_HINTS = {
    errno.EADDRINUSE: "Another program listens there; --port takes another one.",
    errno.EADDRNOTAVAIL: _NO_ADDRESS,
}

_UNSAFE_HINT = "See --token (or GAIA_SERVE_TOKEN) and --allow-anonymous."


def run_server(run: Callable[[], None], options: Options, unsafe_hint: str = _UNSAFE_HINT) -> None:
    """Run a server, and turn errors that the user can fix into messages. `unsafe_hint` is for `UnsafeOptions`."""
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
    """A function that prints the server's URL on standard error, which programs wait for."""
    return lambda url: typer.echo(f"{what}: {url}", err=True)


_END_SECONDS = 2.0


class BackgroundHandler(logging.Handler):
    """Writes log records to a descriptor on its own thread. Records beyond its bounds are dropped and counted.

    The reader of a pipe may stop reading. A blocked write must delay neither an event loop, nor signal handlers, nor
    the end of the process, so no lock is held during a write, not even the lock of a stream.
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
        return self._handover.flush(seconds)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def _dropped(self, count: int) -> None:
        self._write(f"WARNING log_lines_dropped count={count}\n".encode())


def log_without_waiting() -> None:
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        # Standard error was replaced, for example by a test.
        return
    gaia = logging.getLogger("gaia")
    handler = BackgroundHandler(sys.stderr.fileno())
    handler.setFormatter(next((each.formatter for each in gaia.handlers if each.formatter is not None), None))
    # Another handler below the root would write each event twice.
    gaia.handlers[:] = [logging.NullHandler()]
    logging.root.addHandler(handler)
    atexit.register(_end, handler)


def _end(handler: BackgroundHandler) -> None:
    from gaia.runtime import log

    log.flush(_END_SECONDS)
    handler.wait(_END_SECONDS)
