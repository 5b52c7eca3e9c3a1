"""Which projects' ``mcp_servers.json`` the user trusts: such a file names commands, and may come with any download.

A file is trusted by its path and its content, so a changed file has to be trusted anew. The list is the user's own,
``~/.gaia/mcp_trusted.json``:
``{"version": 1, "files": {path: {"sha256": …, "servers": {name: what it runs}}}}``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gaia.mcp.client import json_file
from gaia.mcp.redaction import MASK, sounds_secret

__all__ = ["ProjectFile", "TrustStore", "describe", "digest"]

_FILE_NAME = "mcp_trusted.json"
_VERSION = 1
_EXAMPLE = '{"version": 1, "files": {…}}'


class ProjectFile(msgspec.Struct, frozen=True):
    """A project's configuration file as it was read."""

    path: Path
    sha256: str
    servers: dict[str, str]
    """What each server runs, in lines for people (see `describe`)."""
    problem: str | None = None
    """Why the file cannot be used, if it cannot."""


class _Trusted(msgspec.Struct, frozen=True):
    sha256: str
    servers: dict[str, str] = {}


class TrustStore:
    """The list of trusted files. Every method reads it anew, so it may be shared with other processes. Thread-safe.

    All methods raise ConfigError if the list cannot be read, understood or saved; it is left as it is.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = json_file.home_folder(_FILE_NAME) / _FILE_NAME if file is None else file

    def trusts(self, path: Path, data: bytes) -> bool:
        """Whether `data` is what was trusted as the content of the file `path`."""
        known = self._files(self._document()).get(str(path))
        return known is not None and known.sha256 == digest(data)

    def trusted_servers(self, path: Path) -> dict[str, str] | None:
        """What the servers of the file ran when it was trusted; None if it never was."""
        known = self._files(self._document()).get(str(path))
        return None if known is None else known.servers

    def trusted_files(self) -> dict[Path, str]:
        """The SHA-256 of each trusted file's content."""
        return {Path(path): known.sha256 for path, known in self._files(self._document()).items()}

    def trust(self, project: ProjectFile) -> None:
        with json_file.locked(self.file) as target:
            document = self._document()
            self._files(document)
            entry = msgspec.to_builtins(_Trusted(project.sha256, project.servers))
            files = {**document.get("files", {}), str(project.path): entry}
            json_file.write(target, {**document, "version": _VERSION, "files": files})

    def revoke(self, path: Path) -> bool:
        """False if the file was not trusted."""
        if str(path) not in self._files(self._document()):
            return False
        with json_file.locked(self.file) as target:
            document = self._document()
            document.get("files", {}).pop(str(path), None)
            json_file.write(target, document)
            return True

    def _document(self) -> dict[str, Any]:
        return json_file.read_version(self.file, _EXAMPLE, _VERSION)

    def _files(self, document: dict[str, Any]) -> dict[str, _Trusted]:
        try:
            return msgspec.convert(document.get("files", {}), dict[str, _Trusted])
        except msgspec.ValidationError as error:
            json_file.broken(self.file, f"files: {error}", cause=error)


def digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def describe(entry: Mapping[str, Any]) -> str:
    """What a server's entry makes us do, in lines for people. Values whose names sound secret are masked.

    Entries that cannot be used are described too.
    """
    rest = dict(entry)
    command, args, url = rest.pop("command", None), rest.pop("args", None), rest.pop("url", None)
    lines = []
    if command is not None:
        # A command without args is a command line already.
        line = str(command) if args is None else shlex.join([str(command), *map(str, _list(args))])
        lines.append(f"runs: {line}")
    if url is not None:
        lines.append(f"connects to: {url}")
    if cwd := rest.pop("cwd", None):
        lines.append(f"in the directory: {cwd}")
    for kind in ("env", "headers"):
        values = rest.pop(kind, None)
        if isinstance(values, Mapping):
            lines += [f"{kind}: {name}={_shown(name, value)}" for name, value in values.items()]
    lines += [f"{key}: {json.dumps(_masked(value), ensure_ascii=False)}" for key, value in sorted(rest.items())]
    return "\n".join(lines)


def _shown(name: str, value: object) -> str:
    # A reference to a variable is no secret, and says where one goes.
    return MASK if sounds_secret(name) and "${" not in str(value) else str(value)


def _masked(value: Any) -> Any:
    """Of objects within an entry, such as ``auth``, the strings are judged by their own names."""
    if not isinstance(value, dict):
        return value
    return {key: _shown(key, item) if isinstance(item, str) else _masked(item) for key, item in value.items()}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
