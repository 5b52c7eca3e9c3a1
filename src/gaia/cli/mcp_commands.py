"""The group `gaia mcp`."""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.core import TyperCommand

from gaia.cli.approving import approve
from gaia.cli.authorizing import login, logout
from gaia.cli.bench import bench
from gaia.cli.calling import call
from gaia.cli.configuring import AddCommand, add, disable, enable, remove
from gaia.cli.dashboard import dashboard
from gaia.cli.demo import demo
from gaia.cli.doctor import doctor, test_client
from gaia.cli.gateway import app as gateway_app
from gaia.cli.importing import import_servers
from gaia.cli.listing import list_servers, list_tools
from gaia.cli.options import Options, add_command, with_options
from gaia.cli.prompts import get_prompt, list_prompts
from gaia.cli.resources import list_resources, read_resource
from gaia.cli.serve import bridge, serve
from gaia.cli.trusting import trust_project
from gaia.cli.watch import watch

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
@with_options("trust", "config", "as_json", "trace", "debug")
def mcp(options: Options) -> None:
    """Look after the configured MCP servers, and call their tools."""


def _add(name: str, command: Callable[..., None], *examples: str, cls: type[TyperCommand] | None = None) -> None:
    add_command(app, name, command, *examples, cls=cls)


_add(
    "add",
    add,
    'gaia mcp add time "uvx mcp-server-time"',
    "gaia mcp add git --env GIT_PAGER=cat -- mcp-server-git --repository .",
    "gaia mcp add files --allow 'read_*' --allow list_directory \"npx -y @modelcontextprotocol/server-filesystem .\"",
    cls=AddCommand,
)
_add("remove", remove, "gaia mcp remove time")
_add("enable", enable, "gaia mcp enable time")
_add("disable", disable, "gaia mcp disable time", "gaia mcp disable time --config team.json")
_add(
    "list",
    list_servers,
    "gaia mcp list",
    "gaia mcp list --no-connect --json",
    "gaia mcp list http://127.0.0.1:8765/mcp",
)
_add("tools", list_tools, "gaia mcp tools time", "gaia mcp tools time get_current_time")
_add(
    "call",
    call,
    "gaia mcp call time get_current_time timezone=Europe/Berlin",
    """gaia mcp call time get_current_time '{"timezone": "UTC"}' --timeout 5""",
    "gaia mcp call notes add text=@note.md",
    "gaia mcp call notes add @arguments.json",
)
_add("resources", list_resources, "gaia mcp resources notes", "gaia mcp resources notes --json")
_add(
    "read",
    read_resource,
    "gaia mcp read notes file:///notes/today.md",
    "gaia mcp read notes file:///notes/plan.png --output plan.png",
)
_add("prompts", list_prompts, "gaia mcp prompts notes")
_add("prompt", get_prompt, "gaia mcp prompt notes summarize topic=travel", "gaia mcp prompt notes review text=@note.md")
_add("login", login, "gaia mcp login notes", "gaia mcp login notes --no-browser", "gaia mcp login notes --scope write")
_add("logout", logout, "gaia mcp logout notes")
_add("approve", approve, "gaia mcp approve time", "gaia mcp approve time --tool get_current_time --yes")
_add("trust", trust_project, "gaia mcp trust", "gaia mcp trust --list", "gaia mcp trust --revoke ~/some/project")
_add("test-client", test_client, "gaia mcp test-client time")
_add("doctor", doctor, "gaia mcp doctor", "gaia mcp doctor time", "gaia mcp doctor --json")
_add("watch", watch, "gaia mcp watch", "gaia mcp watch --once", "gaia mcp watch http://127.0.0.1:8765/mcp")
_add(
    "dashboard",
    dashboard,
    "gaia mcp dashboard",
    "gaia mcp dashboard --port 0 --open",
    "gaia mcp dashboard http://127.0.0.1:8765/mcp",
)
_add(
    "import",
    import_servers,
    "gaia mcp import --dry-run",
    "gaia mcp import --from claude-desktop",
    "gaia mcp import --file team/mcp.json time git",
)
_add(
    "serve",
    serve,
    "gaia mcp serve my_package.agents:NotesAgent",
    "GAIA_SERVE_TOKEN=... gaia mcp serve my_package.agents:NotesAgent --transport http --port 8000",
)
app.add_typer(gateway_app, name="gateway")
_add("bridge", bridge, "gaia mcp bridge my_package.agents:NotesAgent code=my_package.agents:CodeAgent")
_add(
    "bench",
    bench,
    "gaia mcp bench",
    """gaia mcp bench --server time --tool get_current_time --arguments '{"timezone": "UTC"}'""",
)
_add("demo", demo, "gaia mcp demo", "gaia mcp demo --json")
