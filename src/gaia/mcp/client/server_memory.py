"""Remembers the tools of lazy servers from their last start, so that they can be listed before the next start.

For a server from a configuration file, a private file in ``~/.gaia/known_servers/`` keeps them for the next process,
one file for each entry. A file that cannot be used is ignored, and the server is started instead.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.negotiation import HANDSHAKE, STATELESS
from gaia.mcp.supervision.context import KnownServer
from gaia.runtime import json_file
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_FOLDER = "known_servers"
_VERSION = 1
_EXAMPLE = '{"version": 1, "tools": […]}'
_MAX_BYTES = 64 * 1024 * 1024
_WHAT_DECIDES = ("command", "args", "cwd", "type", "url", "protocol")
"""Keys of an entry on which the server's tools depend, besides the names of its environment variables."""


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: str
    stateless: bool
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    tools: list[Any]
    instructions: str | None = None
    version: int = _VERSION


def identity_of(server: ServerConfig, source: Path | None) -> str:
    """The file name of a server's memory. Another command, URL, or file of the entry (`source`) gives another name."""
    decides = [getattr(server, key) for key in _WHAT_DECIDES]
    place = "" if source is None else os.path.abspath(source)
    text = json.dumps([server.name, decides, sorted(server.env or {}), place])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class ServerMemory:
    """Remembers one server. Thread-safe: its content is replaced as a whole."""

    def __init__(self, identity: str | None = None, last: KnownServer | None = None) -> None:
        """With an `identity` (`identity_of`) the memory is also kept in a file. `last` is the initial content."""
        self._identity = identity
        self._last = last
        self._was_read = False

    def recall(self) -> KnownServer | None:
        """The last known start; None if there is none. The first call reads the file."""
        if self._last is None and self._identity is not None and not self._was_read:
            self._was_read = True
            self._last = self._read()
        return self._last

    def remember(self, profile: ServerProfile, tools: list[Any]) -> None:
        """Keep the server's answers. A failure to save them is only logged."""
        before, self._last = self.recall(), (profile, tools)
        if self._identity is None or before == self._last:
            return
        document = _Document(
            protocol_version=profile.protocol_version,
            stateless=profile.era.is_stateless,
            server_info=dict(profile.server_info),
            capabilities=dict(profile.capabilities),
            tools=tools,
            instructions=profile.instructions,
        )
        try:
            file = self._file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The write replaces the file atomically, so no lock is needed: the last start of the server wins.
            json_file.write(file, msgspec.to_builtins(document))
        except Exception as error:  # noqa: BLE001 - it is only a memory
            logger.warning("server_memory_not_saved", error=exception_text(error))

    def _file(self) -> Path:
        return json_file.home_folder(_FOLDER) / _FOLDER / f"{self._identity}.json"

    def _read(self) -> KnownServer | None:
        try:
            file = self._file()
            if not file.exists():
                return None
            # Reading a pipe or a device might never end.
            if not file.is_file() or file.stat().st_size > _MAX_BYTES:
                raise ConfigError(f"{file}: not a file of at most {_MAX_BYTES} bytes; delete it")
            known = msgspec.convert(json_file.read_version(file, _EXAMPLE, _VERSION), _Document)
        except Exception as error:  # noqa: BLE001 - as above
            logger.warning("server_memory_unusable", error=exception_text(error))
            return None
        era = STATELESS if known.stateless else HANDSHAKE
        profile = ServerProfile(known.protocol_version, known.server_info, known.capabilities, era, known.instructions)
        return profile, known.tools
