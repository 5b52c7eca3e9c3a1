"""`MCPConfig`: which servers there are, as files say it, or a program.

A file holds ``{"mcpServers": {name: {…}}}``; the older key ``servers`` is read as well. People edit these files, and so
do other programs: what is not ours is kept, what cannot be understood is never written over, and every save changes one
entry of what the file holds at that moment.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaia.locks import reentrant_lock
from gaia.log import get_logger
from gaia.mcp.client import json_file
from gaia.mcp.client.server_config import unknown_keys
from gaia.mcp.client.trust import ProjectFile, TrustStore, describe, digest
from gaia.mcp.errors import ConfigError

__all__ = ["MCPConfig", "read_project"]

logger = get_logger(__name__)

_FILE_NAME = "mcp_servers.json"
_SECTIONS = ("mcpServers", "servers")
"""Where servers are found in a file. If both name a server, the first one wins."""

_EXAMPLE = '{"mcpServers": {…}}'

_reported: set[tuple[Path, str]] = set()
"""The files and servers whose unknown keys were reported, so that each is reported once per process."""

_Entry = dict[str, Any]


class MCPConfig:
    """The configured servers. Thread-safe, and safe against other processes that save to the same files.

    Without `config_file` two files are stacked: ``~/.gaia/mcp_servers.json`` and, over it, ``mcp_servers.json`` in the
    current directory. Of two servers with one name the local one counts. Saves go to the local file if there was one
    at this moment, else to the global one. With `config_file` only that file counts.

    Files that do not exist, or are empty, hold no servers. Raises ConfigError, naming file, line and column, if a file
    cannot be read or understood; the same holds for each method that saves, and then the file stays as it is. Of the
    two stacked files, one that other users can change is refused too, unless the user trusts its content.

    `MCPConfig.in_memory` makes a configuration without any file.
    """

    config_file: Path | None
    """Where saves go; None for a configuration in memory, which is never saved."""

    untrusted: ProjectFile | None
    """The local file, if it was left out because the user has not trusted it."""

    def __init__(self, config_file: str | os.PathLike[str] | None = None, *, trust_local: bool = True) -> None:
        """With `trust_local` false, a local file counts only if the user has trusted it (``gaia mcp trust``).

        Use that where the current directory may come from another person: the file says which programs are started. By
        default it counts like the global one, because a program mostly is in a directory that its user chose.
        """
        files = _default_files() if config_file is None else [_absolute(config_file)]
        self._local = files[1] if len(files) > 1 else None
        contents = {file: json_file.read_bytes(file) for file in files}
        self.untrusted = None
        if self._local is not None and not trust_local and not TrustStore().trusts(self._local, contents[self._local]):
            self.untrusted = _project(self._local, contents.pop(self._local))
            logger.warning("local_config_untrusted", file=str(self._local), trust_it_with="gaia mcp trust")
            files.remove(self._local)
        if config_file is None:
            for file in files:
                _refuse_what_others_write(file, contents[file])
        self.config_file = files[-1]
        self._open({file: _entries(file, json_file.decode(file, contents[file], _EXAMPLE)) for file in files})
        for file in files:
            _report_unknown_keys(file, self._layers[file])

    @classmethod
    def in_memory(cls, servers: Mapping[str, Mapping[str, Any]]) -> MCPConfig:
        """A configuration of these servers, which reads and writes no file: changes of it are changes in memory.

        `servers` has the entries by name, with the keys that they have in a file. Raises ConfigError for one that is
        not a dictionary that JSON can hold.
        """
        config = cls.__new__(cls)
        config.config_file = config.untrusted = config._local = None
        config._open({})
        for name, entry in servers.items():
            config.add_server(name, entry, save=False)
        return config

    def _open(self, files: dict[Path | None, dict[str, _Entry]]) -> None:
        self._lock = reentrant_lock()
        """Owns changes of `_layers` and of `_servers`. Never held during I/O: each file has a lock file of its own."""
        self._layers = files | {None: {}}
        """What each loaded file defines, the one that counts most last; and over them, what is in memory only."""
        self._servers: dict[str, _Entry] = {}
        """All layers merged. Replaced as a whole and never changed, so readers need no lock."""
        self._merge()

    def add_server(self, name: str, config: Mapping[str, Any], *, save: bool = True) -> None:
        """Add a server, or replace the one of this name, in `config_file` only.

        With `save` false, and in a configuration without a file, the server is kept in memory only: it counts before
        those of the files, which are not changed.

        Raises ConfigError if this is not a dictionary that JSON can hold, or if the file cannot be saved.
        """
        entry = _as_json(name, config)
        if self.config_file is not None and save:
            self._save(self.config_file, name, entry)
        self._keep_in_memory(name, None if self.config_file is not None and save else entry)

    def remove_server(self, name: str) -> None:
        """Remove a server from memory and from every loaded file that defines it.

        Does nothing if there is none of this name.
        """
        if name not in self._servers:
            return
        # All files are read before the first is changed: if one is broken, nothing happens.
        files = [file for file in self._layers if file is not None]
        defining = [file for file in files if name in _entries(file, json_file.read(file, _EXAMPLE))]
        if self._local in defining:
            _refuse_link_out(self._local)
        for file in defining:
            self._save(file, name, None)
        with self._lock:
            # In other files, another process had removed the entry.
            for entries in self._layers.values():
                entries.pop(name, None)
            self._merge()

    def get_server(self, name: str) -> dict[str, Any]:
        """A copy of a server's entry as the file has it, variables not expanded; empty if there is none."""
        return copy.deepcopy(self._servers.get(name, {}))

    def get_servers(self) -> dict[str, dict[str, Any]]:
        """A copy of all entries by name: those of the global file first."""
        return copy.deepcopy(self._servers)

    def server_exists(self, name: str) -> bool:
        """Whether a server of this name is configured."""
        return name in self._servers

    def source_of(self, name: str) -> Path | None:
        """The file whose entry counts for this server; None if that is in memory, or there is no such server."""
        with self._lock:
            return next((file for file, entries in reversed(self._layers.items()) if name in entries), None)

    def _keep_in_memory(self, name: str, entry: _Entry | None) -> None:
        with self._lock:
            self._layers[None].pop(name, None)
            if entry is not None:
                self._layers[None][name] = entry
            self._merge()

    def _merge(self) -> None:
        self._servers = {name: entry for entries in self._layers.values() for name, entry in entries.items()}

    def _save(self, file: Path, name: str, entry: _Entry | None) -> None:
        """Set one entry of a file, or remove it if `entry` is None."""
        if file == self._local:
            _refuse_link_out(file)
        with json_file.locked(file) as target:
            before = json_file.read_bytes(file)
            document = json_file.decode(file, before, _EXAMPLE)
            _entries(file, document)
            defining = [key for key in _SECTIONS if name in document.get(key, {})]
            if entry is None:
                for key in defining:
                    del document[key][name]
            else:
                legacy = "servers" in document and "mcpServers" not in document
                section = (*defining, "servers" if legacy else "mcpServers")[0]
                document.setdefault(section, {})[name] = entry
            if entry is not None or defining:
                after = json_file.write(target, document)
                if file == self._local:
                    _keep_trusted(file, before, after)
            # Within the file's lock, so that of two threads the last one to save is the last one here too.
            with self._lock:
                self._layers[file].pop(name, None)
                if entry is not None:
                    self._layers[file][name] = entry
                self._merge()


def read_project(file: Path) -> ProjectFile:
    """A project's configuration file, as the user sees it before trusting it. Raises ConfigError."""
    return _project(file, json_file.read_bytes(file))


def _project(file: Path, data: bytes) -> ProjectFile:
    servers: dict[str, str] = {}
    problem = None
    key = TrustStore().key_of(file)
    try:
        entries = _entries(file, json_file.decode(file, data, _EXAMPLE))
        servers = {name: describe(entry, key) for name, entry in entries.items()}
    except ConfigError as error:
        # A file that does not count must not keep the others from being used.
        problem = error.message
    return ProjectFile(file, digest(data), servers, problem, key)


def _keep_trusted(file: Path, before: bytes, after: bytes) -> None:
    """What the user adds to a file that they trust does not have to be trusted anew."""
    # If the list of trusted files cannot be used, the file is not trusted: the user is asked once more.
    with contextlib.suppress(ConfigError):
        store = TrustStore()
        if store.trusts(file, before):
            store.trust(_project(file, after))


def _refuse_what_others_write(file: Path, data: bytes) -> None:
    """Raise ConfigError if other users can say which programs are started, unless this user has agreed to `data`."""
    if (others := json_file.who_else_writes(file)) is not None and not TrustStore().trusts(file, data):
        raise ConfigError(
            f"{file}: {others} (or look at the file, and run: gaia mcp trust {shlex.quote(str(file))}); it says which "
            "programs are started"
        )


def _refuse_link_out(local: Path) -> None:
    """Raise ConfigError if a project's file is a link to a place elsewhere, which the project has chosen."""
    target = Path(os.path.realpath(local))
    if not target.is_relative_to(os.path.realpath(local.parent)):
        raise ConfigError(
            f"{local}: is a symbolic link to {target}, outside of its folder, and is not written through (the file was "
            "not changed); name that file with --config, or replace the link"
        )


def _default_files() -> list[Path]:
    """The files to stack, the one that counts most last."""
    files = [json_file.home_folder(_FILE_NAME) / _FILE_NAME]
    # The current directory may have been deleted.
    with contextlib.suppress(OSError):
        local = Path.cwd() / _FILE_NAME
        if local.exists() and not (files[0].exists() and local.samefile(files[0])):
            files.append(local)
    return files


def _absolute(file: str | os.PathLike[str]) -> Path:
    # A program that changes its directory later must not save elsewhere than it read.
    try:
        return Path(file).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{os.fspath(file)}: there is no such home directory; set HOME or write the path") from error


def _entries(file: Path, document: dict[str, Any]) -> dict[str, _Entry]:
    """The servers in a file's JSON object, by name."""
    found: dict[str, _Entry] = {}
    for key in reversed(_SECTIONS):
        section = document.get(key, {})
        if not isinstance(section, dict):
            json_file.broken(file, f'{key}: expected an object like {{"<name>": {{"command": …}}}}')
        for name, entry in section.items():
            if not isinstance(entry, dict):
                json_file.broken(file, f'{key}.{name}: expected an object like {{"command": …}}')
            found[name] = entry
    return found


def _report_unknown_keys(file: Path, entries: dict[str, _Entry]) -> None:
    for name, entry in entries.items():
        unknown = unknown_keys(entry)
        if unknown and (file, name) not in _reported:
            _reported.add((file, name))
            similar = {key: known for key, known in unknown.items() if known is not None}
            logger.warning("config_keys_unknown", file=str(file), server=name, keys=list(unknown), did_you_mean=similar)


def _as_json(name: object, config: object) -> _Entry:
    """The entry as it will be read back: a copy, of JSON's types only."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"add_server: expected a server name, got {name!r}; give a string that is not empty")
    if not isinstance(config, Mapping):
        raise ConfigError(f"server {name!r}: expected a config dict with a 'command', got {type(config).__name__}")
    try:
        entry: _Entry = json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"server {name!r}: the config dict cannot be saved as JSON: {error}") from error
    return entry
