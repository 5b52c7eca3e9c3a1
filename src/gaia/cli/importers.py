"""Where other programs keep their MCP servers, and how their entries read in our format."""

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
"""Where servers stand in a file that the user names, whichever program it belongs to."""


class Program(enum.Enum):
    """The programs whose files can be read."""

    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    VSCODE = "vscode"
    CURSOR = "cursor"


@dataclass(frozen=True)
class Place:
    """A file that may hold servers, at one of several paths of keys within its JSON."""

    file: Path
    sections: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    is_project: bool = False
    """Whether the file may have come with the current directory, and names commands that the user has never seen."""


@dataclass(frozen=True)
class Candidate:
    """One server as another program has it, translated."""

    name: str
    file: Path
    entry: dict[str, Any]
    needs: list[str] = field(default_factory=list)
    """Environment variables that the user has to set: the other program would have asked for a value."""
    dropped: list[str] = field(default_factory=list)
    """Keys that mean nothing here."""
    problem: str | None = None
    """Why it cannot be used; None if it can."""
    is_project: bool = False
    """See `Place`."""


def places(program: Program) -> list[Place]:
    """The files of a program that would count in the current directory, the one that counts most first."""
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
    """A file of any of these programs, or of another one that writes the same format."""
    return Place(file, _ANY_SECTIONS)


def candidates(place: Place) -> list[Candidate] | None:
    """The servers in a file, translated; None if there is no such file.

    Raises ConfigError, naming file, line and column, if it cannot be understood.
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
    """The servers at this path of keys, if there are any. Raises ConfigError for what is there and is no object."""
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
    """Where desktop programs keep their settings on this system."""
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
"""What we know and what means the same wherever it stands.

A "timeout" does not: some give it in milliseconds. Nor does "auth", in which each program writes what it likes.
"""

_URL_KEYS = {"httpUrl": {"type": "http"}, "serverUrl": {}}
"""What Gemini CLI and Windsurf call the address, and what that means besides."""

_EXPANDED = ("args", "env", "url", "headers", "sandbox")
"""Keys in which we replace variables when the server is started."""

_INPUT_PREFIX = "MCP_INPUT_"
"""An input called "path" must not become the variable PATH."""

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(rf"{_NAME.pattern}(:-.*)?")

_OTHERS = frozenset({"workspaceFolder", "workspaceFolderBasename", "file", "cwd"})
"""Words of editors that would be read as names of environment variables."""


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
    """Translates the variables of one entry, and remembers what the user has to know about it."""

    def __init__(self, file: Path) -> None:
        self.needs: list[str] = []
        self.problem: str | None = None
        self._known = {"userHome": str(Path.home()), "/": os.sep, "pathSeparator": os.sep}
        # Only a file in a project's folder says which project is meant.
        if file.parent.name in (".vscode", ".cursor") and file.parent.parent != Path.home():
            workspace = file.absolute().parent.parent
            self._known |= {"workspaceFolder": str(workspace), "workspaceFolderBasename": workspace.name}

    def translate(self, value: Any) -> Any:
        """`value` with the variables in its strings, and in those it consists of, in our notation."""
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


# JSON as editors write it. The libraries for it are either JSON5, which accepts much more than these files may have, or
# no longer maintained; the two rules need less code than a dependency needs care.

# What is not closed ends with its line, or with the text: it is found once, not from each place where it could begin.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")
_VISIBLE = re.compile(r"[^\n]")


def loads_with_comments(text: str) -> Any:
    """The value in `text`, JSON as editors write it: with comments, and with commas after the last item.

    Raises json.JSONDecodeError, whose line and column are those of `text`.
    """
    # Each character is replaced by a blank, so that everything else stays where it is. Comments go first: one may stand
    # between a comma and its bracket.
    return json.loads(_TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text)))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    is_open = found.startswith("/*") and not found.endswith("*/")
    return found if found.startswith('"') or is_open else _VISIBLE.sub(" ", found)
