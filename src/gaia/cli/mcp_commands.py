"""The group `gaia mcp`."""

from __future__ import annotations

from typing import ClassVar

import typer

from gaia.cli.lazy_group import LazyCommand, LazyGroup, LazySubgroup, Offers
from gaia.cli.options import Options, with_options


class McpGroup(LazyGroup):
    """The commands in the order of the help."""

    offers: ClassVar[Offers] = {
        "add": LazyCommand(
            "gaia.cli.configuring",
            "add",
            (
                'gaia mcp add time "uvx mcp-server-time"',
                "gaia mcp add git --env GIT_PAGER=cat -- mcp-server-git --repository .",
                (
                    "gaia mcp add files --allow 'read_*' --allow list_directory "
                    '"npx -y @modelcontextprotocol/server-filesystem ."'
                ),
            ),
            cls="AddCommand",
        ),
        "remove": LazyCommand("gaia.cli.configuring", "remove", ("gaia mcp remove time",)),
        "enable": LazyCommand("gaia.cli.configuring", "enable", ("gaia mcp enable time",)),
        "disable": LazyCommand(
            "gaia.cli.configuring",
            "disable",
            (
                "gaia mcp disable time",
                "gaia mcp disable time --config team.json",
            ),
        ),
        "list": LazyCommand(
            "gaia.cli.listing",
            "list_servers",
            (
                "gaia mcp list",
                "gaia mcp list --no-connect --json",
                "gaia mcp list http://127.0.0.1:8765/mcp",
                "gaia mcp list --ray 10.0.0.1:6379",
            ),
        ),
        "placement": LazyCommand(
            "gaia.cli.cluster",
            "placement",
            (
                "gaia mcp placement browser",
                "gaia mcp placement browser --ray 10.0.0.1:6379 --json",
                "gaia mcp placement browser --stop",
            ),
        ),
        "tools": LazyCommand(
            "gaia.cli.listing",
            "list_tools",
            (
                "gaia mcp tools time",
                "gaia mcp tools time get_current_time",
            ),
        ),
        "call": LazyCommand(
            "gaia.cli.calling",
            "call",
            (
                "gaia mcp call time get_current_time timezone=Europe/Berlin",
                """gaia mcp call time get_current_time '{"timezone": "UTC"}' --timeout 5""",
                "gaia mcp call notes add text=@note.md",
                "gaia mcp call notes add @arguments.json",
            ),
        ),
        "resources": LazyCommand(
            "gaia.cli.resources",
            "list_resources",
            (
                "gaia mcp resources notes",
                "gaia mcp resources notes --json",
            ),
        ),
        "read": LazyCommand(
            "gaia.cli.resources",
            "read_resource",
            (
                "gaia mcp read notes file:///notes/today.md",
                "gaia mcp read notes file:///notes/plan.png --output plan.png",
            ),
        ),
        "prompts": LazyCommand("gaia.cli.prompts", "list_prompts", ("gaia mcp prompts notes",)),
        "prompt": LazyCommand(
            "gaia.cli.prompts",
            "get_prompt",
            (
                "gaia mcp prompt notes summarize topic=travel",
                "gaia mcp prompt notes review text=@note.md",
            ),
        ),
        "login": LazyCommand(
            "gaia.cli.authorizing",
            "login",
            (
                "gaia mcp login notes",
                "gaia mcp login notes --no-browser",
                "gaia mcp login notes --scope write",
            ),
        ),
        "logout": LazyCommand("gaia.cli.authorizing", "logout", ("gaia mcp logout notes",)),
        "approve": LazyCommand(
            "gaia.cli.approving",
            "approve",
            (
                "gaia mcp approve time",
                "gaia mcp approve time --tool get_current_time --yes",
            ),
        ),
        "trust": LazyCommand(
            "gaia.cli.trusting",
            "trust_project",
            (
                "gaia mcp trust",
                "gaia mcp trust --list",
                "gaia mcp trust --revoke ~/some/project",
            ),
        ),
        "test-client": LazyCommand("gaia.cli.doctor", "test_client", ("gaia mcp test-client time",)),
        "doctor": LazyCommand(
            "gaia.cli.doctor",
            "doctor",
            (
                "gaia mcp doctor",
                "gaia mcp doctor time",
                "gaia mcp doctor --json",
            ),
        ),
        "watch": LazyCommand(
            "gaia.cli.watch",
            "watch",
            (
                "gaia mcp watch",
                "gaia mcp watch --once",
                "gaia mcp watch http://127.0.0.1:8765/mcp",
            ),
        ),
        "dashboard": LazyCommand(
            "gaia.cli.dashboard",
            "dashboard",
            (
                "gaia mcp dashboard",
                "gaia mcp dashboard --port 0 --open",
                "gaia mcp dashboard http://127.0.0.1:8765/mcp",
            ),
        ),
        "import": LazyCommand(
            "gaia.cli.importing",
            "import_servers",
            (
                "gaia mcp import --dry-run",
                "gaia mcp import --from claude-desktop",
                "gaia mcp import --file team/mcp.json time git",
            ),
        ),
        "serve": LazyCommand(
            "gaia.cli.serve",
            "serve",
            (
                "gaia mcp serve my_package.agents:NotesAgent",
                "GAIA_SERVE_TOKEN=... gaia mcp serve my_package.agents:NotesAgent --transport http --port 8000",
            ),
        ),
        "gateway": LazySubgroup("gaia.cli.gateway"),
        "bridge": LazyCommand(
            "gaia.cli.serve",
            "bridge",
            ("gaia mcp bridge my_package.agents:NotesAgent code=my_package.agents:CodeAgent",),
        ),
        "bench": LazyCommand(
            "gaia.cli.bench",
            "bench",
            (
                "gaia mcp bench",
                """gaia mcp bench --server time --tool get_current_time --arguments '{"timezone": "UTC"}'""",
            ),
        ),
        "demo": LazyCommand(
            "gaia.cli.demo",
            "demo",
            (
                "gaia mcp demo",
                "gaia mcp demo --json",
                "gaia mcp demo --ray",
            ),
        ),
    }


app = typer.Typer(cls=McpGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
@with_options("trust", "config", "as_json", "trace", "debug")
def mcp(options: Options) -> None:
    """Look after the configured MCP servers, and call their tools."""
