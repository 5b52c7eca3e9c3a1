"""`gaia mcp serve` and `gaia mcp bridge`: agents as MCP servers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gaia.cli.failures import USAGE, CommandFailed
from gaia.cli.options import DebugOption, Options, TraceOption

if TYPE_CHECKING:
    from gaia.agents.base import MCPAgent
    from gaia.mcp.server.offering import Offering
    from gaia.serving.options import HttpOptions

__all__ = ["bridge", "http_options", "load", "serve", "serving"]


AgentT = TypeVar("AgentT")


class Transport(StrEnum):
    """How clients reach the agent."""

    STDIO = "stdio"
    HTTP = "http"


TargetArgument = Annotated[str, typer.Argument(metavar="PACKAGE.MODULE:AGENT", help="The agent's class.")]
TransportOption = Annotated[Transport, typer.Option(help="How clients reach the agent.")]
HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
TokenOption = Annotated[
    str | None,
    typer.Option(envvar="GAIA_SERVE_TOKEN", help="Bearer token that clients must send. Better set GAIA_SERVE_TOKEN."),
]
AllowHostOption = Annotated[
    list[str] | None, typer.Option("--allow-host", metavar="NAME", help="Another host name of this server.")
]
AllowOriginOption = Annotated[
    list[str] | None, typer.Option("--allow-origin", metavar="ORIGIN", help="Web pages that may call.")
]
AnonymousOption = Annotated[bool, typer.Option("--allow-anonymous", help="Listen beyond this machine without a token.")]
MaxBodyOption = Annotated[int, typer.Option(min=1024, metavar="BYTES", help="Largest request.")]
GraceOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long calls may take to end when the server is told to.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, help="How many calls run at once.")]

MAX_BODY = 4 * 1024 * 1024


def serve(
    ctx: typer.Context,
    target: TargetArgument,
    transport: TransportOption = Transport.STDIO,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    allow_anonymous: AnonymousOption = False,
    max_body: MaxBodyOption = MAX_BODY,
    grace: GraceOption = 5.0,
    threads: ThreadsOption = 32,
    trace: TraceOption = None,
    debug: DebugOption = False,
) -> None:
    """Serve an agent to MCP clients, until the client goes away (stdio) or the process is told to end (HTTP).

    The class is looked for in the working directory too, and is called without arguments.
    """
    options = Options.of(ctx, None, False, debug, trace=trace)
    http = http_options(host, port, token, allow_host, allow_origin, allow_anonymous, max_body, grace)
    _run(lambda: load_mcp_agent(target), transport, http, threads, options)


def bridge(
    ctx: typer.Context,
    targets: Annotated[
        list[str], typer.Argument(metavar="[NAMESPACE=]PACKAGE.MODULE:AGENT...", help="The agents' classes.")
    ],
    transport: TransportOption = Transport.STDIO,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    allow_anonymous: AnonymousOption = False,
    max_body: MaxBodyOption = MAX_BODY,
    grace: GraceOption = 5.0,
    threads: ThreadsOption = 32,
    trace: TraceOption = None,
    debug: DebugOption = False,
) -> None:
    """Serve several agents to MCP clients at one endpoint: tools are named NAMESPACE_tool.

    A namespace that is not given is made of the class: code for CodeAgent.
    """
    options = Options.of(ctx, None, False, debug, trace=trace)
    http = http_options(host, port, token, allow_host, allow_origin, allow_anonymous, max_body, grace)
    _run(lambda: _bridge(targets), transport, http, threads, options)


def http_options(
    host: str,
    port: int,
    token: str | None,
    allow_host: list[str] | None,
    allow_origin: list[str] | None,
    allow_anonymous: bool,
    max_body: int,
    grace: float,
) -> HttpOptions:
    """What the command line says about the HTTP server."""
    from gaia.serving.options import HttpOptions

    return HttpOptions(
        host=host,
        port=port,
        token=token,
        allow_hosts=tuple(allow_host or ()),
        allow_origins=tuple(allow_origin or ()),
        allow_anonymous=allow_anonymous,
        max_body=max_body,
        shutdown_grace=grace,
    )


def load_mcp_agent(target: str) -> MCPAgent:
    from gaia.agents.base import MCPAgent

    # Abstract for those who write agents; here it only says what is accepted.
    return load(target, MCPAgent)  # type: ignore[type-abstract]


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


def serving(run: Callable[[], None], options: Options) -> None:
    """Run a server, with the failures that are the user's to mend told in words."""
    from gaia.serving.extra import ServingUnavailable
    from gaia.serving.options import UnsafeOptions

    if not options.debug:
        _log_problems()
    try:
        run()
    except UnsafeOptions as error:
        hint = "See --token (or GAIA_SERVE_TOKEN) and --allow-anonymous."
        raise CommandFailed(str(error), exit_code=USAGE, hint=hint, error_type="unsafe_options") from error
    except ServingUnavailable as error:
        raise CommandFailed(str(error), exit_code=USAGE, error_type="extra_missing") from error
    except OSError as error:
        raise CommandFailed(f"cannot listen: {error}", error_type="cannot_listen") from error


def announce(what: str) -> Callable[[str], None]:
    """Says on standard error where the server is; programs wait for this line."""
    return lambda url: typer.echo(f"{what}: {url}", err=True)


def _run(make: Callable[[], Offering], transport: Transport, http: HttpOptions, threads: int, options: Options) -> None:
    def run() -> None:
        from gaia.serving.extra import require

        if transport is Transport.STDIO:
            require("mcp", "jsonschema")
            from gaia.mcp.server.stdio import serve as serve_stdio

            serve_stdio(make, max_line=http.max_body, max_threads=threads)
        else:
            require("mcp", "jsonschema", "uvicorn", "starlette")
            from gaia.mcp.server.http import serve as serve_http

            http.check()
            serve_http(make(), http, announce("MCP endpoint"), max_threads=threads)

    serving(run, options)


def _bridge(targets: list[str]) -> Offering:
    from gaia.mcp.mcp_bridge import MCPBridge, namespace_of

    agents: dict[str, Offering] = {}
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


def _log_problems() -> None:
    import logging

    from gaia import log

    log.configure(level=logging.WARNING)
