"""`gaia mcp import`: imports servers from the configuration of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gaia.cli import terminal
from gaia.cli.importers import Candidate, Place, Program, any_place, candidates, places
from gaia.cli.options import Options, with_options
from gaia.cli.terminal import FAILED, USAGE, CommandFailed, unknown_name, usage_error
from gaia.mcp.errors import ConfigError
from gaia.runtime.untrusted_text import escaped_line

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig

_STYLES = {"imported": "green", "replaced": "green", "would import": "green", "would replace": "green"}
_PROBLEM = "unusable"
_WOULD = ("would import", "would replace")


@with_options("new_config", "as_json", "debug")
def import_servers(
    options: Options,
    names: Annotated[list[str] | None, typer.Argument(help="Only these servers; all of them if none is named.")] = None,
    program: Annotated[
        Program | None, typer.Option("--from", help="The program; all of them if none is given.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PATH", help="This file, of any of these programs.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace servers that exist already.")] = False,
    assume_yes: Annotated[
        bool, typer.Option("--yes", help="Take over servers of the current directory without asking.")
    ] = False,
) -> None:
    """Take over servers from Claude Desktop, Claude Code, VS Code and Cursor.

    Their files are only read. Project files are looked for in the current directory, and count before those of the
    user; their commands are shown and asked about, because they may have come with a download. Servers that exist here
    already are skipped. ${env:NAME} becomes ${NAME}; for ${input:ID}, which those programs ask for, the value is
    expected in the environment variable MCP_INPUT_ID.

    Examples:
      gaia mcp import --dry-run
      gaia mcp import --from claude-desktop
      gaia mcp import --file team/mcp.json time git
    """
    if program is not None and file is not None:
        raise usage_error("give either --from or --file")
    servers = options.load_config(create=True)
    found, looked_in, broken = _search(program, file)
    known = {candidate.name for candidate in found}
    missing = [name for name in names or () if name not in known]
    if missing and not broken:
        raise unknown_name("server", missing[0], known, place=" in the files of other programs")
    wanted = [candidate for candidate in found if not names or candidate.name in names]

    def take_over(*, only_try: bool) -> list[dict[str, Any]]:
        taken: dict[str, Path] = {}
        return [_take_over(candidate, servers, taken, force=force, dry_run=only_try) for candidate in wanted]

    if not dry_run and not assume_yes:
        new = [row for row in take_over(only_try=True) if row["of_project"] and row["status"] in _WOULD]
        if new and not _agreed(new, options):
            raise CommandFailed("nothing was imported", error_type="untrusted")
    rows = take_over(only_try=dry_run)
    if options.json:
        terminal.print_json({"entries": rows, "target": str(servers.config_file), "files": looked_in, "broken": broken})
    else:
        _show(rows, servers, looked_in, broken)
    if broken:
        raise typer.Exit(USAGE)
    if any(row["status"] == _PROBLEM for row in rows):
        raise typer.Exit(FAILED)


def _search(program: Program | None, file: Path | None) -> tuple[list[Candidate], list[dict[str, Any]], list[str]]:
    """Servers found, files looked for, and error messages for files that cannot be read."""
    found: list[Candidate] = []
    looked_in, broken = [], []
    for place in _places(program, file):
        here: list[Candidate] | None = []
        try:
            here = candidates(place)
        except ConfigError as error:
            # A file named by the user must be readable. Otherwise a broken file does not stop the others.
            if file is not None:
                raise
            broken.append(error.message)
        if here is None and file is not None:
            raise usage_error(f"{file} does not exist")
        looked_in.append({"file": str(place.file), "exists": here is not None})
        found.extend(here or ())
    return found, looked_in, broken


def _places(program: Program | None, file: Path | None) -> list[Place]:
    if file is not None:
        return [any_place(file.expanduser())]
    return [place for each in Program if program in (None, each) for place in places(each)]


def _take_over(
    candidate: Candidate, servers: MCPConfig, taken: dict[str, Path], *, force: bool, dry_run: bool
) -> dict[str, Any]:
    """Save one server, unless there is a reason not to. Returns its row of the report.

    `taken` has the names that were handled already. Of several servers with one name the first counts, as in the
    programs.
    """
    from gaia.mcp.config.trust import describe

    row: dict[str, Any] = {
        "name": candidate.name,
        "source": str(candidate.file),
        "of_project": candidate.is_project,
        "description": describe(candidate.entry),
        "needs": candidate.needs,
        "dropped": candidate.dropped,
        "problem": candidate.problem,
    }
    if candidate.name in taken:
        return row | {"status": "skipped", "problem": f"the one in {taken[candidate.name]} counts"}
    taken[candidate.name] = candidate.file
    exists = servers.server_exists(candidate.name)
    if candidate.problem is not None:
        return row | {"status": _PROBLEM}
    if exists and not force:
        return row | {"status": "skipped", "problem": f"exists already in {servers.source_of(candidate.name)}"}
    if dry_run:
        return row | {"status": "would replace" if exists else "would import"}
    servers.add_server(candidate.name, candidate.entry)
    return row | {"status": "replaced" if exists else "imported"}


def _agreed(new: list[dict[str, Any]], options: Options) -> bool:
    """Ask the person at the terminal whether to import these servers of the current directory.

    Raises CommandFailed if there is no terminal.
    """
    if options.json or not terminal.can_ask():
        raise usage_error(
            "servers of the files in this directory are only imported after they were looked at; nothing was imported",
            "Look at them with --dry-run, then repeat this with --yes.",
            "untrusted",
            servers={row["name"]: row["description"] for row in new},
        )
    terminal.note("Files in this directory name servers, which may be started from then on:", "yellow")
    for row in new:
        terminal.note(f"  {escaped_line(row['name'])}  ({escaped_line(row['source'])})", "bold")
        for line in row["description"].split("\n"):
            terminal.note(f"    {line}")
    return terminal.yes("Import them?")


def _show(rows: list[dict[str, Any]], servers: MCPConfig, looked_in: list[dict[str, Any]], broken: list[str]) -> None:
    from rich.text import Text

    for row in rows:
        style = _STYLES.get(row["status"], "red" if row["status"] == _PROBLEM else "yellow")
        server = terminal.text(f"{escaped_line(row['name'])}  ({escaped_line(row['source'])})")
        terminal.show(Text.assemble(terminal.text(row["status"], style), "  ", server))
        # Show the command: it may come from a project's file, and counts as the user's own from now on.
        for line in row["description"].split("\n"):
            terminal.say(f"    {line}")
        if row["problem"] is not None:
            terminal.say(f"    {escaped_line(row['problem'])}")
        for variable in row["needs"]:
            terminal.say(f"    needs a value: set the environment variable {variable}")
        if row["dropped"]:
            terminal.say(f"    left out: {', '.join(map(escaped_line, row['dropped']))}")
    if any(row["status"] in ("imported", "replaced") for row in rows):
        terminal.say(f"Saved in {servers.config_file}")
    for message in broken:
        terminal.note(f"Error: {message}", "red")
    if not rows and not broken:
        terminal.say("There is nothing to import. These files were looked for:")
        for each in looked_in:
            remark = "has no servers" if each["exists"] else "does not exist"
            terminal.say(f"    {each['file']} ({remark})")
