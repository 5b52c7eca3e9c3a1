"""`gaia mcp import`: takes over servers from other programs' configuration, translated into gaia's format."""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Exit, Option

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.terminal import FAILED, USAGE, CommandFailed, unknown_name, usage_error
from gaia.mcp.errors import ConfigError
from gaia.runtime.untrusted_text import escaped_line

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig


class Program(enum.Enum):
    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    VSCODE = "vscode"
    CURSOR = "cursor"


_STYLES = {"unusable": "red", "skipped": "yellow"}


@with_options("new_config", "as_json", "debug")
def import_servers(
    options: Options,
    names: Annotated[list[str] | None, Argument(help="Only these servers; all of them if none is named.")] = None,
    program: Annotated[Program | None, Option("--from", help="The program; all of them if none is given.")] = None,
    file: Annotated[Path | None, Option("--file", metavar="PATH", help="This file, of any of these programs.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    force: Annotated[bool, Option("--force", help="Replace servers that exist already.")] = False,
    assume_yes: Annotated[
        bool, Option("--yes", help="Take over servers of the current directory without asking.")
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
        rows = take_over(only_try=True)
        new = [row for row in rows if row["of_project"] and row["status"].startswith("would")]
        if new and not _agreed(new, options):
            raise CommandFailed("nothing was imported", error_type="untrusted")
    rows = take_over(only_try=dry_run)
    if options.json:
        terminal.print_json({"entries": rows, "target": str(servers.config_file), "files": looked_in, "broken": broken})
    else:
        _show(rows, servers, looked_in, broken)
    if broken:
        raise Exit(USAGE)
    if any(row["status"] == "unusable" for row in rows):
        raise Exit(FAILED)


def _search(program: Program | None, file: Path | None) -> tuple[list[Candidate], list[dict[str, Any]], list[str]]:
    found: list[Candidate] = []
    looked_in, broken = [], []
    of_programs = (origin for each in Program if program in (None, each) for origin in settings_files(each))
    for origin in of_programs if file is None else [named_file(file.expanduser())]:
        here: list[Candidate] | None = []
        try:
            here = candidates(origin)
        except ConfigError as error:
            # A file named by the user must be readable. Any other broken file does not stop the import.
            if file is not None:
                raise
            broken.append(error.message)
        if here is None and file is not None:
            raise usage_error(f"{file} does not exist")
        looked_in.append({"file": str(origin.file), "exists": here is not None})
        found.extend(here or ())
    return found, looked_in, broken


def _take_over(
    candidate: Candidate, servers: MCPConfig, taken: dict[str, Path], *, force: bool, dry_run: bool
) -> dict[str, Any]:
    """Save one server, unless there is a reason against it. Returns its row of the report.

    `taken` has the names that were handled already. If several servers have one name, the first counts, as in the
    programs.
    """
    from gaia.mcp.config.trust import describe

    name = candidate.name
    row: dict[str, Any] = {
        "name": name,
        "source": str(candidate.origin.file),
        "of_project": candidate.origin.is_project,
        "description": describe(candidate.entry),
        "needs": candidate.needs,
        "dropped": candidate.dropped,
        "problem": candidate.problem,
    }
    if name in taken:
        return row | {"status": "skipped", "problem": f"the one in {taken[name]} counts"}
    taken[name] = candidate.origin.file
    exists = servers.server_exists(name)
    if candidate.problem is not None:
        return row | {"status": "unusable"}
    if exists and not force:
        return row | {"status": "skipped", "problem": f"exists already in {servers.source_of(name)}"}
    if dry_run:
        return row | {"status": "would replace" if exists else "would import"}
    servers.add_server(name, candidate.entry)
    return row | {"status": "replaced" if exists else "imported"}


def _agreed(new: list[dict[str, Any]], options: Options) -> bool:
    """Ask the person whether to import these servers of the current directory.

    Raises CommandFailed without a terminal.
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
        terminal.say_lines(row["description"], console=terminal.err())
    return terminal.yes("Import them?")


def _show(rows: list[dict[str, Any]], servers: MCPConfig, looked_in: list[dict[str, Any]], broken: list[str]) -> None:
    from rich.text import Text

    for row in rows:
        status = terminal.text(row["status"], _STYLES.get(row["status"], "green"))
        server = terminal.text(f"{escaped_line(row['name'])}  ({escaped_line(row['source'])})")
        terminal.show(Text.assemble(status, "  ", server))
        # The command is shown because it may come from a project's file, and belongs to the user's own file from now
        # on.
        terminal.say_lines(row["description"])
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


class SettingsFile(NamedTuple):
    file: Path
    sections: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    is_project: bool = False
    """Whether the file may have come with the current directory, so that the user may not know its commands."""


class Candidate(NamedTuple):
    name: str
    origin: SettingsFile
    entry: dict[str, Any]
    needs: list[str]
    """Environment variables that the user has to set. The other program would ask for the values."""
    dropped: list[str]
    problem: str | None


def settings_files(program: Program) -> list[SettingsFile]:
    """The files that a program would read in the current directory, in order of precedence."""
    home, here = Path.home(), Path.cwd()
    try:
        is_project = not home.samefile(here)
    except OSError:
        is_project = True
    match program:
        case Program.CLAUDE_DESKTOP:
            return [SettingsFile(_application_folder() / "Claude" / "claude_desktop_config.json")]
        case Program.CLAUDE_CODE:
            private = home / ".claude.json"
            local = SettingsFile(private, (("projects", str(here), "mcpServers"),))
            return [local, SettingsFile(here / ".mcp.json", is_project=is_project), SettingsFile(private)]
        case Program.VSCODE:
            user = _application_folder() / "Code" / "User"
            servers = (("servers",),)
            return [
                SettingsFile(here / ".vscode" / "mcp.json", servers, is_project),
                SettingsFile(user / "mcp.json", servers),
                SettingsFile(user / "settings.json", (("mcp", "servers"), ("mcp.servers",))),
            ]
        case Program.CURSOR:
            project = SettingsFile(here / ".cursor" / "mcp.json", is_project=is_project)
            return [project, SettingsFile(home / ".cursor" / "mcp.json")]


def _application_folder() -> Path:
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")


_ANY_SECTIONS = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp.servers",))


def named_file(file: Path) -> SettingsFile:
    """A file that the user names, of any program that has one of these formats."""
    return SettingsFile(file, _ANY_SECTIONS)


def candidates(origin: SettingsFile) -> list[Candidate] | None:
    """The servers in a file, translated; None if the file does not exist.

    Raises ConfigError with file, line and column if the file cannot be parsed.
    """
    try:
        text = origin.file.read_bytes().decode("utf-8-sig")
        document = loads_with_comments(text) if text.strip() else {}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{origin.file}: cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{origin.file}: {where}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin.file}: not usable JSON: {error}") from error
    found: dict[str, Candidate] = {}
    for section in origin.sections:
        for name, entry in _section(origin.file, document, section).items():
            if name not in found:
                found[name] = _translated(name, entry, origin)
    if not found and origin.sections is _ANY_SECTIONS and isinstance(document, dict):
        from gaia.mcp.config.config_files import refuse_misplaced

        refuse_misplaced(origin.file, document)
    return list(found.values())


def _section(file: Path, document: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """The servers at this path of keys, if any. Raises ConfigError for a value that is not an object."""
    place = ""
    for key in keys:
        if not isinstance(document, dict):
            break
        document, place = document.get(key), f"{place}.{key}".lstrip(".")
    else:
        if document is not None and not isinstance(document, dict):
            raise ConfigError(f'{file}: {place}: expected an object like {{"<name>": {{"command": …}}}}')
        return document or {}
    if not place and document is not None:
        raise ConfigError(f'{file}: expected an object like {{"mcpServers": {{…}}}}')
    return {}


_LEFT_OUT = frozenset({"name", "inProcess", "timeout", "auth"})
"""gaia's own keys that are not imported: some programs give "timeout" in milliseconds, and "auth" always differs."""

_URL_KEYS = {"httpUrl": {"type": "http"}, "serverUrl": {}}
"""The URL keys of Gemini CLI and Windsurf, and the members that each implies."""

_EXPANDED = ("args", "env", "url", "headers", "sandbox")
"""Keys whose variables are expanded when the server is started."""

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(rf"{_NAME.pattern}(:-.*)?")

_OTHERS = frozenset({"workspaceFolder", "workspaceFolderBasename", "file", "cwd"})
"""Variables of editors that would otherwise count as names of environment variables."""


def _translated(name: str, entry: Any, origin: SettingsFile) -> Candidate:
    from gaia.mcp.config.server_config import ServerConfig

    if not isinstance(entry, dict):
        return Candidate(name, origin, {}, [], [], "expected an object with a command or a url")
    variables = _Variables(origin.file)
    for key, implied in _URL_KEYS.items():
        if key in entry and not entry.keys() & {"command", "url"}:
            entry = {("url" if name == key else name): value for name, value in (implied | entry).items()}
    ours = [key for key in ServerConfig.__struct_encode_fields__ if key not in _LEFT_OUT]
    kept = {key: variables.translate(entry[key]) for key in ours if key in entry}
    problem = variables.problem
    for key, value in kept.items():
        if key not in _EXPANDED and isinstance(value, str) and (match := _VARIABLE.search(value)):
            problem = problem or f"{key}: {match[0]} is not replaced there; write the value"
    if problem is None:
        try:
            ServerConfig.from_dict(name, kept)
        except ConfigError as error:
            problem = error.message
    return Candidate(name, origin, kept, variables.needs, [key for key in entry if key not in kept], problem)


class _Variables:
    def __init__(self, file: Path) -> None:
        self.needs: list[str] = []
        self.problem: str | None = None
        self._known = {"userHome": str(Path.home()), "/": os.sep, "pathSeparator": os.sep}
        # Only a file in a project's folder implies a workspace.
        if file.parent.name in (".vscode", ".cursor") and file.parent.parent != Path.home():
            workspace = file.absolute().parent.parent
            self._known |= {"workspaceFolder": str(workspace), "workspaceFolderBasename": workspace.name}

    def translate(self, value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(self._replacement, value)
        if isinstance(value, list):
            return [self.translate(item) for item in value]
        if isinstance(value, dict):
            return {key: self.translate(item) for key, item in value.items()}
        return value

    def _replacement(self, match: re.Match[str]) -> str:
        variable = match[1]
        kind, colon, name = variable.partition(":")
        if variable in self._known:
            return self._known[variable]
        if kind == "env" and _NAME.fullmatch(name):
            return f"${{{name}}}"
        if kind == "input" and colon:
            # The prefix prevents an input called "path" from becoming the variable PATH.
            needed = "MCP_INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
            if needed not in self.needs:
                self.needs.append(needed)
            return f"${{{needed}}}"
        if not _OURS.fullmatch(variable) or variable in _OTHERS:
            self.problem = f"the variable {match[0]} means nothing here; write the value"
        return match[0]


# A parser for JSON with comments and trailing commas. The available libraries are unmaintained, or are JSON5 parsers,
# which accept much more than these files may contain.

# An unclosed string ends with its line and an unclosed comment with the text, so that matching stays linear.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")


def loads_with_comments(text: str) -> Any:
    """Parse JSON that may have comments and trailing commas, as editors write it.

    Raises json.JSONDecodeError, whose line and column refer to `text`.
    """
    # Each removed character becomes a blank, so that positions stay the same. Comments are removed first, because a
    # comment may stand between a comma and its bracket.
    return json.loads(_TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text)))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    is_open = found.startswith("/*") and not found.endswith("*/")
    return found if found.startswith('"') or is_open else re.sub(r"[^\n]", " ", found)
