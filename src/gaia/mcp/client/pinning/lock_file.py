"""The lock file: which tool definitions of which servers have been approved.

``{"version": 1, "servers": {server: {tool: {"sha256": …, "definition": {…}}}}}``. It belongs to the user and lies
beside the user's configuration, never in a project's folder: a project must not be able to approve its own servers'
tools.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gaia.mcp.client import json_file
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.tool import MCPTool

__all__ = ["LOCK_FILE_NAME", "Pin", "ServerPins", "default_pins", "pin_of", "pins_of"]

LOCK_FILE_NAME = "mcp_tools.lock.json"

_CONFIG_NAME = "mcp_servers.json"
_VERSION = 1
_EXAMPLE = '{"version": 1, "servers": {…}}'


class Pin(msgspec.Struct, frozen=True):
    """One approved tool: all that a model, or the person who confirms a call, is told about it."""

    sha256: str
    """Of the canonical JSON of the definition, in hexadecimal. This is what counts."""
    definition: dict[str, Any]
    """In the words of the protocol, without what is empty. For people who want to see what has changed."""


def pin_of(tool: MCPTool) -> Pin:
    """The pin of a tool as it is now. The order of keys does not matter to it, everything else does."""
    import hashlib

    parts = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    definition = {key: value for key, value in parts.items() if value not in (None, "", {})}
    # ASCII, so that what cannot be encoded (half of a surrogate pair) has a hash too.
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Pin(hashlib.sha256(canonical.encode()).hexdigest(), definition)


class ServerPins:
    """The approved tools of one server. Every method reads the file anew, so it may be shared with other processes.

    Thread-safe. All methods raise ConfigError for a file that cannot be read, understood or saved; it is left as it is.
    """

    def __init__(self, file: Path, key: str) -> None:
        """`key` names the server in `file`."""
        self.file = file
        self._key = key

    def read(self) -> dict[str, Pin] | None:
        """The pins by tool; None if this server was never pinned."""
        return self._find(self._document())

    def read_or_pin(self, pins: Mapping[str, Pin], seconds: float | None = None) -> dict[str, Pin]:
        """What `read` returns, after pinning `pins` if the server was never pinned (trust on first use).

        Waits up to `seconds` for other processes that hold the file, if it has to be changed.
        """
        found = self.read()
        if found is not None:
            return found
        with json_file.locked(self.file, seconds) as target:
            document = self._document()
            # Another process may have been first.
            found = self._find(document)
            if found is None:
                found = dict(pins)
                self._write(target, document, found)
            return found

    def approve(self, pins: Mapping[str, Pin], removed: Collection[str] = ()) -> None:
        """Add `pins` to those of the server, replacing older ones, and forget the tools `removed`."""
        with json_file.locked(self.file) as target:
            document = self._document()
            kept = {tool: pin for tool, pin in (self._find(document) or {}).items() if tool not in removed}
            self._write(target, document, {**kept, **pins})

    def forget(self) -> bool:
        """Forget the server, so that its next use is the first again. False if it was never pinned."""
        if self.read() is None:
            return False
        with json_file.locked(self.file) as target:
            document = self._document()
            document.get("servers", {}).pop(self._key, None)
            json_file.write(target, document)
            return True

    def _document(self) -> dict[str, Any]:
        document = json_file.read_version(self.file, _EXAMPLE, _VERSION)
        if not isinstance(document.get("servers", {}), dict):
            json_file.broken(self.file, f"servers: expected an object as in {_EXAMPLE}")
        return document

    def _find(self, document: dict[str, Any]) -> dict[str, Pin] | None:
        tools = document.get("servers", {}).get(self._key)
        if tools is None:
            return None
        try:
            return msgspec.convert(tools, dict[str, Pin])
        except msgspec.ValidationError as error:
            json_file.broken(self.file, f"servers.{self._key}: {error}", cause=error)

    def _write(self, target: Path, document: dict[str, Any], pins: Mapping[str, Pin]) -> None:
        servers = document.get("servers", {})
        servers[self._key] = {tool: msgspec.to_builtins(pin) for tool, pin in sorted(pins.items())}
        json_file.write(target, {**document, "version": _VERSION, "servers": servers})


def default_pins(server: str) -> ServerPins:
    """For a client without a configuration file: in ``~/.gaia``. Raises ConfigError if there is no home directory."""
    return ServerPins(json_file.home_folder(LOCK_FILE_NAME) / LOCK_FILE_NAME, server)


def pins_of(config: MCPConfig, server: str, file: Path | None = None) -> ServerPins:
    """The pins of a configured server: in `file`, by default in the lock file beside the user's configuration.

    Servers of other configuration files, a project's for one, are kept apart by the path of their file.
    """
    file = file or config.user_file.with_name(LOCK_FILE_NAME)
    source = config.source_of(server) or config.config_file
    own = source == file.with_name(_CONFIG_NAME)
    return ServerPins(file, server if own else f"{server} in {source}")
