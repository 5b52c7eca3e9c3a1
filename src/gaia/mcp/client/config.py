"""`MCPConfig`: the configured servers, from files or from the program.

People and other programs edit the files too. So unknown keys are kept, a file that cannot be understood is never
overwritten, and every save changes one entry of the file's present content.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gaia.mcp.config import config_files
from gaia.mcp.config.config_files import Loaded, LoadReport, entries_of
from gaia.mcp.config.config_variables import keep_variables, plain_secrets
from gaia.mcp.config.server_config import ServerConfig, remarks_on_keys, require_servers, unknown_keys
from gaia.mcp.config.trust import ProjectFile, TrustStore
from gaia.mcp.errors import ConfigError
from gaia.mcp.tools.pins import ServerPins, pins_in
from gaia.mcp.transports.base import InProcessServer
from gaia.runtime import json_file
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_reported: set[tuple[Path | None, str]] = set()


class _Merged(NamedTuple):
    entries: dict[str, Any]
    servers: dict[str, dict[str, Any]]
    problems: dict[str, str]


class MCPConfig:
    """The configured servers. Thread-safe, and safe against other processes that save to the same files.

    A file holds ``{"mcpServers": {name: {…}}}``; the older key ``servers`` is read as well. Without `config_file` two
    files are stacked: ``~/.gaia/mcp_servers.json`` and, over it, ``mcp_servers.json`` in the current directory, or else
    the one beside the program's main script. If both name a server, the local entry counts. Saves go to the local file
    if it existed when the configuration was made, else to the global one. With `config_file` only that file counts.

    Files that are empty or do not exist hold no servers. The constructor and each method that saves raise ConfigError
    if a file cannot be read or understood; the file then stays as it is. Of the two stacked files, a file that other
    users can change is refused too, unless the user trusts its content. An entry that cannot be used does not affect
    the others; see `problems`.
    """

    config_file: Path | None
    """The file that saves go to; None for a configuration in memory, which is never saved."""
    untrusted: ProjectFile | None
    """The local file, if it was left out because the user has not trusted it."""
    load_report: LoadReport
    """The loaded files, see `LoadReport`."""
    warnings: list[str]
    """Probable mistakes in the loaded files, such as misspelt keys. Each is a sentence that names the place."""

    def __init__(
        self,
        config_file: str | os.PathLike[str] | None = None,
        *,
        trust_local: bool = True,
        strict: bool = False,
        create: bool | None = None,
    ) -> None:
        """With `trust_local` false, a local file counts only if the user has trusted it (``gaia mcp trust``).

        Use this where another person may have written the current directory's files: the file names programs to start.
        With `strict`, ConfigError names each entry that cannot be used and each unknown key.

        A `config_file` that does not exist has no servers, and the first save makes it. The warning
        ``config_file_missing`` is logged then, unless `create` is true; with `create` false it is a ConfigError.
        ``~/.gaia/mcp_servers.json`` need never exist.
        """
        if config_file is None:
            loaded = config_files.load_stack(trust_local=trust_local)
        else:
            loaded = config_files.load_named(config_file, create=create)
        self._begin(loaded, {}, strict=strict)

    @classmethod
    def in_memory(cls, servers: Mapping[str, Mapping[str, Any]], *, strict: bool = False) -> MCPConfig:
        """A configuration of these servers, by name, that reads and writes no file; changes are kept in memory.

        Raises ConfigError if `servers` is not a mapping of entries, or if JSON cannot hold an entry.
        """
        require_servers(servers)
        config = cls.__new__(cls)
        entries = {name: _as_json(name, entry) for name, entry in servers.items()}
        config._begin(config_files.load_nothing(), entries, strict=strict)
        return config

    def _begin(self, loaded: Loaded, in_memory: dict[str, Any], *, strict: bool) -> None:
        self.config_file = next(reversed(loaded.documents), None)
        self.untrusted, self.load_report, self._local = loaded.untrusted, loaded.report, loaded.local
        self._strict = strict
        self._lock = reentrant_lock()
        """Guards changes of `_layers` and `_merged`. Never held during I/O: each file has a lock file."""
        self._layers: dict[Path | None, dict[str, Any]] = {}
        """Each file's entries, by increasing precedence. The entries in memory come last, under None."""
        self._layers |= {file: entries_of(file, document) for file, document in loaded.documents.items()}
        self._layers[None] = in_memory
        self._merge()
        self.warnings = [
            f"{file}: {remark}"
            for file, document in loaded.documents.items()
            for remark in config_files.remarks_on_sections(document)
        ]
        for place, entries in self._layers.items():
            self.warnings += [
                f"{_place(place)}server {name!r}: {remark}"
                for name, entry in entries.items()
                for remark in remarks_on_keys(entry)
            ]
            _log_unknown_keys(place, entries)
        problems = list(self.problems.values())
        # A remark about an entry that is a problem already would repeat it.
        remarks = [one for one in self.warnings if not any(problem.startswith(one) for problem in problems)]
        if strict and (found := [*problems, *remarks]):
            raise ConfigError("; ".join(found))

    @property
    def _servers(self) -> dict[str, dict[str, Any]]:
        """The usable entries; the specification gives the name."""
        return self._merged.servers

    @property
    def problems(self) -> dict[str, str]:
        """Why entries cannot be used, with the file, by server name. `get_servers` leaves these servers out."""
        return dict(self._merged.problems)

    def add_server(self, name: str, config: Mapping[str, Any], *, save: bool = True) -> None:
        """Add a server, or replace the one of this name, in `config_file` only.

        With `save` false, and in a configuration without a file, the server is kept in memory only: it takes precedence
        over the files, which are not changed. ``${VAR}`` is saved as it is. A value whose place in the replaced entry
        has ``${VAR}`` is saved as ``${VAR}`` too, if it equals the variable's value.

        Raises ConfigError, and changes nothing, if the entry cannot be used or the file cannot be saved.
        """
        entry = _as_json(name, config)
        ServerConfig.from_dict(name, entry)
        if self._strict and (remarks := remarks_on_keys(entry)):
            raise ConfigError(f"server {name!r}: {'; '.join(remarks)}")
        file = self.config_file if save else None
        if file is not None and InProcessServer.KEY in entry:
            raise ConfigError(
                f"server {name!r} lives in this program, so it cannot be saved to {file}; add it with save=False"
            )
        _log_unknown_keys(file, {name: entry})
        if file is not None:
            known = keep_variables(entry, self._merged.entries.get(name), os.environ)
            # Another process may have written a variable there since this process read the file.
            self._save(file, name, lambda present: keep_variables(known, present, os.environ))
        self._set(None, name, entry if file is None else None)

    def remove_server(self, name: str, *, everywhere: bool = False) -> list[Path]:
        """Remove a server from the file that `source_of` names, or from memory; with `everywhere` from all of them.

        If another file has an entry of this name, that entry counts from then on. Returns the files that were changed.
        Does nothing if there is no such server. Raises ConfigError if a file cannot be read or saved.
        """
        defining = [file for file, entries in self._layers.items() if name in entries]
        if not defining:
            return []
        places = list(self._layers) if everywhere else defining[-1:]
        # Read all files before the first change: if one is broken, nothing happens.
        files = [file for file in places if file is not None and name in _entries_in(file)]
        if self._local in files:
            config_files.refuse_link_out(self._local)
        for file in files:
            self._save(file, name, lambda _: None)
        with self._lock:
            # Another process has removed the entry from each file that is not in `files`.
            for place in places:
                self._layers[place].pop(name, None)
            self._merge()
        return files

    def set_disabled(self, name: str, disabled: bool) -> bool:
        """Change only ``disabled`` of a server, in the file that `source_of` returns. False if nothing had to change.

        Raises ConfigError if the file cannot be saved, if the entry is not an object, or if there is no such server.
        """

        def change(entry: Any) -> dict[str, Any]:
            if not isinstance(entry, dict):
                reason = "there is no such server" if entry is None else "its entry is not an object"
                raise ConfigError(f"server {name!r}: {reason}; it cannot be {'disabled' if disabled else 'enabled'}")
            rest = {key: value for key, value in entry.items() if key != "disabled"}
            return {**entry, "disabled": True} if disabled else rest

        before = self._merged.entries.get(name)
        after = change(before)
        file = self.source_of(name)
        # Another process may have changed the file meanwhile.
        entries = [before] if file is None else [before, _entries_in(file).get(name, before)]
        if all(isinstance(entry, dict) and entry.get("disabled", False) is disabled for entry in entries):
            return False
        if file is None:
            self._set(None, name, after)
        else:
            self._save(file, name, change)
        return True

    def get_server(self, name: str) -> dict[str, Any]:
        """A copy of a server's entry as written, with its ``${VAR}``; empty if there is none."""
        entry = self._merged.entries.get(name)
        return copy.deepcopy(entry) if isinstance(entry, dict) else {}

    def get_servers(self) -> dict[str, dict[str, Any]]:
        """A copy of all usable entries by name, the entries of the global file first."""
        return copy.deepcopy(self._merged.servers)

    def get_entries(self) -> dict[str, Any]:
        """A copy of all entries by name, in the same order, including those in `problems`: any JSON values."""
        return copy.deepcopy(self._merged.entries)

    def server_exists(self, name: str) -> bool:
        """Whether there is an entry of this name, even one that cannot be used."""
        return name in self._merged.entries

    def source_of(self, name: str) -> Path | None:
        """The file whose entry counts for this server; None if that entry is in memory, or there is no such server."""
        with self._lock:
            return next((file for file, entries in reversed(self._layers.items()) if name in entries), None)

    def pins_of(self, server: str, file: Path | None = None) -> ServerPins:
        """The approved definitions of a server's tools, from `file`, by default in ``~/.gaia``. Raises ConfigError."""
        return pins_in(self.source_of(server) if self.server_exists(server) else self.config_file, server, file)

    def _set(self, place: Path | None, name: str, entry: dict[str, Any] | None) -> None:
        with self._lock:
            # A replaced entry keeps its place, as in the file.
            if entry is None:
                self._layers[place].pop(name, None)
            else:
                self._layers[place][name] = entry
            self._merge()

    def _merge(self) -> None:
        entries: dict[str, Any] = {}
        places: dict[str, Path | None] = {}
        for file, layer in self._layers.items():
            entries |= layer
            places |= dict.fromkeys(layer, file)
        problems: dict[str, str] = {}
        for name, entry in entries.items():
            try:
                ServerConfig.from_dict(name, entry)
            except ConfigError as error:
                problems[name] = f"{_place(places[name])}{error.message}"
        servers = {name: entry for name, entry in entries.items() if name not in problems}
        # Replaced as a whole and never changed, so readers need no lock.
        self._merged = _Merged(entries, servers, problems)

    def _save(self, file: Path, name: str, change: Callable[[Any], dict[str, Any] | None]) -> None:
        """Replace an entry in the file's present content by the result of `change`; None deletes the entry."""
        if file == self._local:
            config_files.refuse_link_out(file)
        with json_file.locked(file) as target:
            before = json_file.read_bytes(file)
            document = json_file.decode(file, before, config_files.EXAMPLE)
            entries_of(file, document)
            defining = [key for key in config_files.SECTIONS if name in document.get(key, {})]
            entry = change(document[defining[0]][name] if defining else None)
            if entry is None:
                for key in defining:
                    del document[key][name]
            else:
                legacy = "servers" in document and "mcpServers" not in document
                section = (*defining, "servers" if legacy else "mcpServers")[0]
                document.setdefault(section, {})[name] = entry
            changed = entry is not None or bool(defining)
            if changed:
                after = json_file.write(target, document)
                if file == self._local:
                    _keep_trusted(file, before, after)
            # Inside the file's lock: if two threads save, the last to write the file is also the last to set `_layers`.
            self._set(file, name, entry)
        saved = {"file": str(file), "server": name}
        saved["change"] = "removed" if entry is None else "replaced" if defining else "added"
        if exposed := plain_secrets(entry or {}):
            logger.warning("config_saved", **saved, plain_secrets=exposed)
        elif changed:
            logger.info("config_saved", **saved)


def _entries_in(file: Path) -> dict[str, Any]:
    return entries_of(file, json_file.read(file, config_files.EXAMPLE))


def _place(file: Path | None) -> str:
    return "" if file is None else f"{file}: "


def _keep_trusted(file: Path, before: bytes, after: bytes) -> None:
    """Keep a trusted file trusted after gaia's own change. If that fails, the user is asked again."""
    with contextlib.suppress(ConfigError):
        store = TrustStore()
        if store.trusts(file, before):
            store.trust(config_files.project_of(file, after))


def _log_unknown_keys(file: Path | None, entries: Mapping[str, Any]) -> None:
    for name, entry in entries.items():
        unknown = unknown_keys(entry)
        if unknown and (file, name) not in _reported:
            _reported.add((file, name))
            similar = {key: known for key, known in unknown.items() if known is not None}
            place = None if file is None else str(file)
            logger.warning("config_keys_unknown", file=place, server=name, keys=list(unknown), did_you_mean=similar)


def _as_json(name: object, config: object) -> Any:
    """A deep copy of the entry with JSON's types only, as a file would hold it."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"add_server: expected a server name, got {name!r}; give a string that is not empty")
    if isinstance(config, Mapping) and isinstance(server := config.get(InProcessServer.KEY), InProcessServer):
        rest = {key: value for key, value in config.items() if key != InProcessServer.KEY}
        return {InProcessServer.KEY: server, **_as_json(name, rest)}
    try:
        return json.loads(json.dumps(config, allow_nan=False, default=_from_mapping))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"server {name!r}: the config dict cannot be saved as JSON: {error}") from error


def _from_mapping(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def as_config(config: MCPConfig | Mapping[str, Mapping[str, Any]]) -> MCPConfig:
    """The manager's `config` argument as an `MCPConfig`. Raises ConfigError if it is neither one nor a mapping."""
    if isinstance(config, Mapping):
        return MCPConfig.in_memory(config)
    if not hasattr(config, "get_servers"):
        require_servers(config)
    return config
