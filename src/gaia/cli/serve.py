"""`gaia mcp serve`, `gaia mcp bridge` and `gaia api serve`: serve agents over MCP or OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gaia.cli.options import Options, add_command, with_options
from gaia.cli.serving import HTTP_ONLY, ThreadsOption, announce, http_options, load, refuse_options, run_server
from gaia.cli.terminal import USAGE, CommandFailed
from gaia.serving.options import HttpOptions

if TYPE_CHECKING:
    from gaia.agents.base import MCPAgent
    from gaia.agents.base.mcp_context import ServableAgent


class Transport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


TransportOption = Annotated[Transport, typer.Option(help="How clients reach the agent.")]


@with_options("trace", "debug", http=http_options)
def serve(
    options: Options,
    target: Annotated[str, typer.Argument(metavar="PACKAGE.MODULE:AGENT", help="The agent's class.")],
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
    targets: Annotated[
        list[str], typer.Argument(metavar="[NAMESPACE=]PACKAGE.MODULE:AGENT...", help="The agents' classes.")
    ],
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


def load_mcp_agent(target: str) -> MCPAgent:
    from gaia.agents.base import MCPAgent

    # Abstract for authors of agents; here it only says what is accepted.
    return load(target, MCPAgent)  # type: ignore[type-abstract]


def _run(
    make: Callable[[], ServableAgent], transport: Transport, http: HttpOptions, threads: int, options: Options
) -> None:
    if transport is Transport.STDIO:
        why = "for a server over HTTP only, and this one would use standard input and output"
        refuse_options(HTTP_ONLY, options, why, "Add --transport http, or leave this out.")

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


app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def api() -> None:
    """Serve agents as models behind OpenAI's API."""


@with_options("trace", "debug", http=http_options)
def serve_api(
    options: Options,
    targets: Annotated[list[str], typer.Argument(metavar="PACKAGE.MODULE:AGENT...", help="The agents' classes.")],
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
