"""Finds the MCP servers of other programs, and translates their entries into our format."""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaia.mcp.errors import ConfigError

_ANY_SECTIONS = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp.servers",))
"""Paths of keys that are tried in a file that the user names, whichever program it belongs to."""


class Program(enum.Enum):
    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    VSCODE = "vscode"
    CURSOR = "cursor"


@dataclass(frozen=True)
class Place:
    """A file that may contain servers, and the paths of keys in its JSON where they may be."""

    file: Path
    sections: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    is_project: bool = False
    """Whether the file may have come with the current directory. The user may never have seen its commands."""


@dataclass(frozen=True)
class Candidate:
    """One server from another program's file, translated."""

    name: str
    file: Path
    entry: dict[str, Any]
    needs: list[str] = field(default_factory=list)
    """Environment variables that the user has to set, because the other program would ask for the value."""
    dropped: list[str] = field(default_factory=list)
    """Keys that have no meaning here."""
    problem: str | None = None
    """The reason why the server cannot be used; None if it can."""
    is_project: bool = False
    """See `Place`."""


def places(program: Program) -> list[Place]:
    """The files that a program would read in the current directory, in order of precedence."""
    home, here = Path.home(), Path.cwd()
    is_project = not _is_same(home, here)
    match program:
        case Program.CLAUDE_DESKTOP:
            return [Place(_application_folder() / "Claude" / "claude_desktop_config.json")]
        case Program.CLAUDE_CODE:
            private = home / ".claude.json"
            local = Place(private, (("projects", str(here), "mcpServers"),))
            return [local, Place(here / ".mcp.json", is_project=is_project), Place(private)]
        case Program.VSCODE:
            user = _application_folder() / "Code" / "User"
            servers = (("servers",),)
            settings = (("mcp", "servers"), ("mcp.servers",))
            return [
                Place(here / ".vscode" / "mcp.json", servers, is_project),
                Place(user / "mcp.json", servers),
                Place(user / "settings.json", settings),
            ]
        case Program.CURSOR:
            project = Place(here / ".cursor" / "mcp.json", is_project=is_project)
            return [project, Place(home / ".cursor" / "mcp.json")]


def _is_same(folder: Path, other: Path) -> bool:
    try:
        return folder.samefile(other)
    except OSError:
        return False


def any_place(file: Path) -> Place:
    """A file that the user names: of any of these programs, or of another one with the same format."""
    return Place(file, _ANY_SECTIONS)


def candidates(place: Place) -> list[Candidate] | None:
    """The servers in a file, translated; None if the file does not exist.

    Raises ConfigError with file, line and column if the file cannot be parsed.
    """
    try:
        text = place.file.read_bytes().decode("utf-8-sig")
        document = loads_with_comments(text) if text.strip() else {}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{place.file}: cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{place.file}: {where}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place.file}: not usable JSON: {error}") from error
    found: dict[str, Candidate] = {}
    for section in place.sections:
        for name, entry in _section(place.file, document, section).items():
            found.setdefault(name, _translated(name, entry, place.file))
    if not found and place.sections is _ANY_SECTIONS and isinstance(document, dict):
        from gaia.mcp.config.config_files import refuse_misplaced

        refuse_misplaced(place.file, document)
    return [replace(candidate, is_project=place.is_project) for candidate in found.values()]


def _section(file: Path, document: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """The servers at this path of keys; empty if there are none. Raises ConfigError for a value that is no object."""
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


def _application_folder() -> Path:
    """The folder for settings of desktop programs on this system."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")


# Entries.

_KEPT = (
    *("type", "command", "args", "env", "cwd", "url", "headers", "disabled", "sandbox"),
    *("enabledTools", "disabledTools", "restart", "standby", "inheritEnv"),
    *("healthInterval", "healthTimeout", "maxPending", "maxMessageBytes", "protocol", "probeTimeout", "startTimeout"),
    *("pinTools", "captureContent", "captureContentTools", "outputValidation", "resetTimeoutOnProgress", "maxTimeout"),
    *("maxLifetime", "maxCalls", "maxMemory", "drainTimeout", "lazy", "idleStop"),
    *("instances", "maxInstances", "placement"),
)
"""Keys that we know and that mean the same in every program.

"timeout" is left out because some programs give it in milliseconds, and "auth" because each program has its own format.
"""

_URL_KEYS = {"httpUrl": {"type": "http"}, "serverUrl": {}}
"""The address keys of Gemini CLI and Windsurf, and what each implies."""

_EXPANDED = ("args", "env", "url", "headers", "sandbox")
"""Keys whose variables are replaced when the server is started."""

_INPUT_PREFIX = "MCP_INPUT_"
"""The prefix keeps an input called "path" from becoming the variable PATH."""

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(rf"{_NAME.pattern}(:-.*)?")

_OTHERS = frozenset({"workspaceFolder", "workspaceFolderBasename", "file", "cwd"})
"""Variables of editors that would be read as names of environment variables."""


def _translated(name: str, entry: Any, file: Path) -> Candidate:
    from gaia.mcp.config.server_config import ServerConfig

    if not isinstance(entry, dict):
        return Candidate(name, file, {}, problem="expected an object with a command or a url")
    translator = _Variables(file)
    for key, implied in _URL_KEYS.items():
        if key in entry and not entry.keys() & {"command", "url"}:
            entry = {("url" if name == key else name): value for name, value in (implied | entry).items()}
    kept = {key: translator.translate(entry[key]) for key in _KEPT if key in entry}
    dropped = [key for key in entry if key not in _KEPT]
    problem = translator.problem or _unexpanded(kept)
    if problem is None:
        try:
            ServerConfig.from_dict(name, kept)
        except ConfigError as error:
            problem = error.message
    return Candidate(name, file, kept, translator.needs, dropped, problem)


def _unexpanded(entry: Mapping[str, Any]) -> str | None:
    for key, value in entry.items():
        if key not in _EXPANDED and isinstance(value, str) and (match := _VARIABLE.search(value)):
            return f"{key}: {match[0]} is not replaced there; write the value"
    return None


class _Variables:
    """Translates the variables of one entry, and collects what the user has to set."""

    def __init__(self, file: Path) -> None:
        self.needs: list[str] = []
        self.problem: str | None = None
        self._known = {"userHome": str(Path.home()), "/": os.sep, "pathSeparator": os.sep}
        # Only a file in a project's folder says which workspace is meant.
        if file.parent.name in (".vscode", ".cursor") and file.parent.parent != Path.home():
            workspace = file.absolute().parent.parent
            self._known |= {"workspaceFolder": str(workspace), "workspaceFolderBasename": workspace.name}

    def translate(self, value: Any) -> Any:
        """`value` with the variables in all its strings, nested ones too, in our notation."""
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
            needed = _INPUT_PREFIX + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
            if needed not in self.needs:
                self.needs.append(needed)
            return f"${{{needed}}}"
        if _OURS.fullmatch(variable) and variable not in _OTHERS:
            return match[0]
        self.problem = f"the variable {match[0]} means nothing here; write the value"
        return match[0]


# A parser for JSON with comments and trailing commas. The available libraries are either JSON5 parsers, which accept
# much more than these files may contain, or unmaintained.

# An unclosed string ends with its line and an unclosed comment with the text, so that matching stays linear.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")
_VISIBLE = re.compile(r"[^\n]")


def loads_with_comments(text: str) -> Any:
    """Parse JSON that may have comments, and commas after last items, as editors write it.

    Raises json.JSONDecodeError, whose line and column refer to `text`.
    """
    # Each removed character becomes a blank, so that positions stay the same. Comments go first: one may stand between
    # a comma and its bracket.
    return json.loads(_TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text)))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    is_open = found.startswith("/*") and not found.endswith("*/")
    return found if found.startswith('"') or is_open else _VISIBLE.sub(" ", found)
