"""The files of an `MCPConfig`: their paths, which of them count, and their content."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, TypeGuard

from gaia.mcp.config.entry_errors import remark
from gaia.mcp.config.trust import ProjectFile, TrustStore, describe, digest
from gaia.mcp.errors import ConfigError
from gaia.runtime import json_file
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

SECTIONS = ("mcpServers", "servers")
"""Keys of a file that hold servers. If both name a server, the first key wins."""

EXAMPLE = '{"mcpServers": {…}}'

_FILE_NAME = "mcp_servers.json"

_RESEMBLES, _MAX_LENGTH = 0.85, 64
"""How similar (`difflib`) a key has to be to one of `SECTIONS` to count as a misspelling, and its maximal length."""


class FileReport(TypedDict):
    """One file: its path, whether or not it exists, and the names of the servers that were loaded from it."""

    path: Path | None
    exists: bool
    servers: list[str]


# A class cannot have the key "global".
LoadReport = TypedDict(
    "LoadReport",
    {
        "mode": Literal["auto", "explicit", "memory"],
        "global": FileReport,
        "local": FileReport,
        "overrides": list[str],
        "path": NotRequired[Path | None],
        "exists": NotRequired[bool],
        "servers": NotRequired[list[str]],
    },
)
"""The files that an `MCPConfig` has loaded.

``overrides`` are the servers of the global file that the local file overrides. In the mode "explicit" the report itself
has the ``path``, ``exists`` and ``servers`` of the named file.
"""


class Loaded(NamedTuple):
    documents: dict[Path, dict[str, Any]]
    report: LoadReport
    local: Path | None = None
    untrusted: ProjectFile | None = None


def load_nothing(mode: Literal["memory", "explicit"] = "memory") -> Loaded:
    return Loaded({}, {"mode": mode, "global": _report(None), "local": _report(None), "overrides": []})


def load_named(path: str | os.PathLike[str], *, create: bool | None) -> Loaded:
    # The path is made absolute: a program that changes its directory later must save to the file that it read.
    try:
        file = Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{os.fspath(path)}: there is no such home directory; set HOME or write the path") from error
    data = json_file.read_bytes(file)
    if not data and not create and not os.path.exists(file) and not _is_user_file(file):
        if create is False:
            raise ConfigError(
                f"{file}: there is no such file; correct the path, or have the file made: "
                f"gaia mcp add --config {shlex.quote(str(file))} NAME COMMAND"
            )
        hint = "correct the path; for a file that the first save is to make, give MCPConfig(path, create=True)"
        logger.warning("config_file_missing", file=str(file), hint=hint)
    document = _decode(file, data)
    report: LoadReport = {**load_nothing("explicit").report, **_report(file, entries_of(file, document))}
    return Loaded({file: document}, report)


def load_stack(*, trust_local: bool) -> Loaded:
    """Load the global file and, over it, the project's; with `trust_local` false, only a trusted project's.

    Makes the folder of the global file if possible. Raises ConfigError without a home directory.
    """
    user_file = _user_file()
    # If this fails, there is no file to read, and a save reports the problem.
    with contextlib.suppress(OSError):
        user_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    local = _local_file(user_file)
    if local is not None:
        _refuse_devices(local)
    files = [user_file] if local is None else [user_file, local]
    contents = {file: json_file.read_bytes(file) for file in files}
    untrusted = None
    if local is not None and not trust_local and not TrustStore().trusts(local, contents[local]):
        untrusted = project_of(local, contents.pop(local))
        logger.warning("local_config_untrusted", file=str(local), trust_it_with="gaia mcp trust")
    for file, data in contents.items():
        if (others := json_file.who_else_writes(file)) is not None and not TrustStore().trusts(file, data):
            raise ConfigError(
                f"{file}: {others} (or look at the file, and run: gaia mcp trust {shlex.quote(str(file))}); it says "
                "which programs are started"
            )
    documents = {file: _decode(file, data) for file, data in contents.items()}
    servers = {file: entries_of(file, document) for file, document in documents.items()}
    below, above = servers[user_file], servers.get(local, {}) if local else {}
    report: LoadReport = {
        "mode": "auto",
        "global": _report(user_file, below),
        "local": _report(local or _here(), above),
        "overrides": [name for name in below if name in above],
    }
    return Loaded(documents, report, local if untrusted is None else None, untrusted)


def entries_of(file: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The servers in a file's JSON object, by name, including unusable entries. Raises ConfigError."""
    refuse_misplaced(file, document)
    found: dict[str, Any] = {}
    for key in reversed(SECTIONS):
        section = document.get(key, {})
        if not isinstance(section, dict):
            json_file.broken(file, f'{key}: expected an object like {{"<name>": {{"command": …}}}}')
        found |= section
    return found


def refuse_misplaced(file: Path, document: Mapping[str, Any]) -> None:
    """Raise ConfigError for a file that is a single entry, or has entries only outside ``mcpServers``."""
    if any(section in document for section in SECTIONS):
        return
    if _resembles_entry(document):
        json_file.broken(file, f'it is the entry of one server; write {{"mcpServers": {{"NAME": {_form(document)}}}}}')
    for name, entry in document.items():
        if _resembles_entry(entry):
            form = f'{{"mcpServers": {{{json.dumps(name)}: {_form(entry)}}}}}'
            json_file.broken(file, f'its servers do not count, because they are not in "mcpServers"; write {form}')


def _resembles_entry(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), str) for key in ("command", "url"))


def _form(entry: Mapping[str, Any]) -> str:
    return f'{{"{"command" if "command" in entry else "url"}": …}}'


def remarks_on_sections(document: Mapping[str, Any]) -> list[str]:
    """Remarks on unread keys of a file that were probably meant to hold servers."""
    import difflib

    meant = {section.lower(): section for section in SECTIONS}
    remarks = []
    for key, value in document.items():
        if key not in SECTIONS and isinstance(value, dict) and len(key) < _MAX_LENGTH:
            close = difflib.get_close_matches(key.lower(), meant, n=1, cutoff=_RESEMBLES)
            remarks += [remark(key, meant[close[0]])] if close else []
    if document and not remarks and not any(section in document for section in SECTIONS):
        remarks.append('it has no "mcpServers", and so no servers')
    return remarks


def read_project(file: Path) -> ProjectFile:
    """A project's configuration file, as it is shown before the user trusts it. Raises ConfigError."""
    _refuse_devices(file)
    return project_of(file, json_file.read_bytes(file))


def project_of(file: Path, data: bytes) -> ProjectFile:
    servers: dict[str, str] = {}
    problem = None
    known = TrustStore().files().get(file)
    # The same key shows which masked values have changed.
    key = (known and known.key) or secrets.token_hex(16)
    try:
        for name, entry in entries_of(file, _decode(file, data)).items():
            servers[name] = describe(entry, key) if isinstance(entry, dict) else "starts nothing: it is not an object"
    except ConfigError as error:
        # A file that does not count must not make the other files unusable.
        problem = error.message
    return ProjectFile(file, digest(data), servers, problem, key)


def _refuse_devices(local: Path) -> None:
    """Raise ConfigError if a project's file is, or links to, a device or a pipe: reading it might never end."""
    if os.path.exists(local) and not local.is_file():
        json_file.broken(local, "not a regular file; replace or remove it")


def refuse_link_out(local: Path) -> None:
    """Raise ConfigError if a project's file links to a place outside its folder: the project chose that place."""
    target = Path(os.path.realpath(local))
    if not target.is_relative_to(os.path.realpath(local.parent)):
        raise ConfigError(
            f"{local}: is a symbolic link to {target}, outside of its folder, and is not written through (the file was "
            "not changed); name that file with --config, or replace the link"
        )


def _report(file: Path | None, servers: Iterable[str] = ()) -> FileReport:
    return {"path": file, "exists": file is not None and os.path.exists(file), "servers": list(servers)}


def _user_file() -> Path:
    return json_file.home_folder(_FILE_NAME) / _FILE_NAME


def _is_user_file(file: Path) -> bool:
    with contextlib.suppress(ConfigError):
        return file == _user_file()
    return False


def _local_file(user_file: Path) -> Path | None:
    """The file in the working directory, or else the file beside the main script, unless the script was installed."""
    if (file := _here()) is not None and os.path.exists(file):
        return None if _is_same(file, user_file) else file
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    # An interactive interpreter or a notebook has no script.
    if isinstance(script, str):
        # Python also imports from the folder of the script itself, not from the folder of a link to it.
        beside = Path(os.path.realpath(script)).with_name(_FILE_NAME)
        if os.path.exists(beside) and not _is_same(beside, user_file) and not _is_of_installation(beside.parent):
            return beside
    return None


def _is_same(file: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return file.samefile(other)
    return False


def _is_of_installation(folder: Path) -> bool:
    import sysconfig

    commands = {sysconfig.get_path("scripts"), os.path.dirname(sys.executable)}
    packages = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return any(str(folder) == os.path.realpath(place) for place in commands) or any(
        folder.is_relative_to(os.path.realpath(place)) for place in packages
    )


def _here() -> Path | None:
    try:
        return Path.cwd() / _FILE_NAME
    except OSError:
        return None


def _decode(file: Path, data: bytes) -> dict[str, Any]:
    return json_file.decode(file, data, EXAMPLE)
