"""What lazy servers said of themselves at their last start: it is what is listed before the next one.

Of servers from configuration files it is kept in ``~/.gaia/known_servers/`` too, one file for each entry, so that a
fresh process knows it. The files are private, and only a memory: one that cannot be used is as good as none, and then
the server is started to ask it.
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
from gaia.runtime import json_file
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_FOLDER = "known_servers"
_VERSION = 1
_EXAMPLE = '{"version": 1, "tools": […]}'
_MAX_BYTES = 64 * 1024 * 1024

_WHAT_DECIDES = ("command", "args", "cwd", "type", "url", "protocol")
"""On these keys of an entry, and on the names of its variables, depends what the server offers."""


class RememberedServer(msgspec.Struct, frozen=True):
    """What one server said at its last start."""

    profile: ServerProfile | None
    """None if the server is not to be asked, although it is not known."""
    tools: list[Any]
    """The definitions of its tools, as it sent them."""


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """The same in a file."""

    protocol_version: str
    stateless: bool
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    tools: list[Any]
    instructions: str | None = None
    version: int = _VERSION


def identity_of(server: ServerConfig, source: Path | None) -> str:
    """The name of the file about a server: another command or URL makes it another server.

    So does another `source`, the file of its entry: the same command means another program in another project.
    """
    decides = [getattr(server, key) for key in _WHAT_DECIDES]
    text = json.dumps(
        [server.name, decides, sorted(server.env or {}), "" if source is None else os.path.abspath(source)]
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class ServerMemory:
    """Remembers one server. Thread-safe: what it holds is replaced as a whole."""

    def __init__(self, identity: str | None = None, last: RememberedServer | None = None) -> None:
        """With an `identity` (`identity_of`) it is kept in a file, too. `last` is what is known already."""
        self._identity = identity
        self._last = last
        self._was_read = False
        """A file that cannot be used is reported once."""

    def recall(self) -> RememberedServer | None:
        """What the server said last; None if that is not known. Reads the file at first."""
        if self._last is None and self._identity is not None and not self._was_read:
            self._was_read = True
            self._last = self._read()
        return self._last

    def remember(self, profile: ServerProfile, tools: list[Any]) -> None:
        """The server has said this. What cannot be saved is logged, nothing more."""
        known = RememberedServer(profile, tools)
        before, self._last = self.recall(), known
        if self._identity is None or before == known:
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
            # It is replaced at once, so it needs no lock: the last start of the server is the one to remember.
            json_file.write(file, msgspec.to_builtins(document))
        except Exception as error:  # noqa: BLE001 - it is only a memory
            logger.warning("server_memory_not_saved", error=exception_text(error))

    def _file(self) -> Path:
        return json_file.home_folder(_FOLDER) / _FOLDER / f"{self._identity}.json"

    def _read(self) -> RememberedServer | None:
        try:
            file = self._file()
            if not file.exists():
                return None
            # Reading what is no file, such as a pipe, might never end.
            if not file.is_file() or file.stat().st_size > _MAX_BYTES:
                raise ConfigError(f"{file}: not a file of at most {_MAX_BYTES} bytes; delete it")
            document = msgspec.convert(json_file.read_version(file, _EXAMPLE, _VERSION), _Document)
        except Exception as error:  # noqa: BLE001 - as above
            logger.warning("server_memory_unusable", error=exception_text(error))
            return None
        era = STATELESS if document.stateless else HANDSHAKE
        profile = ServerProfile(
            document.protocol_version, document.server_info, document.capabilities, era, document.instructions
        )
        return RememberedServer(profile, document.tools)
