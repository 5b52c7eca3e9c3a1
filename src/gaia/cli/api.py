"""`gaia api serve`: agents as models behind OpenAI's chat completions."""

from __future__ import annotations

from typing import Annotated

import typer

from gaia.cli.command_errors import USAGE, CommandFailed
from gaia.cli.options import Options, add_command, with_options
from gaia.cli.serve_options import ThreadsOption, announce, http_options, load, run_server
from gaia.serving.options import HttpOptions

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def api() -> None:
    """Serve agents as models behind OpenAI's API."""


@with_options("trace", "debug", http=http_options)
def serve(
    options: Options,
    targets: Annotated[list[str], typer.Argument(metavar="PACKAGE.MODULE:AGENT...", help="The agents' classes.")],
    http: HttpOptions,
    threads: ThreadsOption = 32,
) -> None:
    """Serve agents as models: /v1/models and /v1/chat/completions, until the process is told to end.

    The classes are looked for in the working directory too, and are called without arguments.
    """

    def run() -> None:
        from gaia.agents.base import ApiAgent
        from gaia.serving.extra import require

        require("starlette", "uvicorn")
        from gaia.api.app import serve as serve_api

        http.check()
        agents = [load(target, ApiAgent) for target in targets]  # type: ignore[type-abstract]
        names = [agent.get_model_id() for agent in agents]
        if len(set(names)) < len(names):
            raise CommandFailed(f"two agents are the same model: {', '.join(sorted(names))}", exit_code=USAGE)
        serve_api(agents, http, announce("API endpoint"), max_threads=threads)

    run_server(run, options)


add_command(
    app,
    "serve",
    serve,
    "gaia api serve my_package.agents:NotesAgent",
    "GAIA_SERVE_TOKEN=... gaia api serve my_package.agents:NotesAgent my_package.agents:CodeAgent --port 8001",
)
