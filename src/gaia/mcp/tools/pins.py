"""Pins: the approved definitions of tools and prompts, and the approved instructions of servers.

The lock file holds them: ``{"version": 1, "servers": {server: {tool: {"sha256": …, "definition": {…}}}}}``, with
``prompts`` and ``instructions`` in the same form. It lies in ``~/.gaia``, never in a project's folder: a project must
not be able to approve its own servers' tools.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gaia.mcp.config.server_config import PinMode
from gaia.mcp.errors import ConfigError, InvalidResponse, ToolNotApproved
from gaia.mcp.supervision.events import ToolDefinitionsChanged
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_catalog import size_within_limits
from gaia.runtime import json_file
from gaia.runtime.log import get_logger

PinKind = Literal["tools", "prompts", "instructions"]

_SECTIONS: dict[PinKind, str] = {"tools": "servers", "prompts": "prompts", "instructions": "instructions"}

LOCK_FILE_NAME = "mcp_tools.lock.json"
_CONFIG_NAME = "mcp_servers.json"
_VERSION = 1
_EXAMPLE = '{"version": 1, "servers": {…}}'


class Pin(msgspec.Struct, frozen=True):
    """One approved tool, prompt or text, with every part that a model or the confirming person sees."""

    sha256: str
    """The SHA-256 of the definition's canonical JSON, in hexadecimal. Only the hashes are compared."""
    definition: dict[str, Any]
    """The definition in the protocol's terms, without empty members, to show people the changes."""


def pin_of(tool: MCPTool) -> Pin:
    """The pin of a tool's present definition. The order of keys does not affect it; everything else does."""
    parts = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return _pin({key: value for key, value in parts.items() if value not in (None, "", {})})


def pins_of_prompts(prompts: Iterable[Any]) -> dict[str, Pin]:
    """The pins of listed prompts by name. Prompts without a name, or with an oversized definition, are left out."""
    found = {}
    for prompt in prompts:
        with contextlib.suppress(InvalidResponse):
            size_within_limits(prompt)
            if isinstance(prompt, dict) and isinstance(name := prompt.get("name"), str):
                found[name] = _pin(prompt)
    return found


def pins_of_text(instructions: str | None) -> dict[str, Pin]:
    return {"instructions": _pin({"instructions": instructions})} if instructions else {}


def _pin(definition: dict[str, Any]) -> Pin:
    import hashlib

    # ASCII, so that text that cannot be encoded (half of a surrogate pair) has a hash too.
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Pin(hashlib.sha256(canonical.encode()).hexdigest(), definition)


class ServerPins:
    """The approved definitions of one server. Every method reads the file anew. Thread-safe.

    All methods raise ConfigError for a file that cannot be read, understood or saved; it is left as it is.
    """

    def __init__(self, file: Path, key: str, kind: PinKind = "tools") -> None:
        """`key` names the server in `file`. All methods except `forget` concern only `kind`."""
        self.file = file
        self._key = key
        self._section = _SECTIONS[kind]

    def of(self, kind: PinKind) -> ServerPins:
        """The approved definitions of another kind, of the same server."""
        return ServerPins(self.file, self._key, kind)

    def read(self) -> dict[str, Pin] | None:
        """The pins by tool, or by prompt; None if this server was never pinned."""
        return self._find(self._document())

    def read_or_pin(self, pins: Mapping[str, Pin], seconds: float | None = None) -> dict[str, Pin]:
        """Return `read()`, or pin `pins` first if the server was never pinned; waits `seconds` for the file's lock."""
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
        """Add `pins` to the server's, replacing older ones, and remove the tools `removed`."""
        with json_file.locked(self.file) as target:
            document = self._document()
            kept = {tool: pin for tool, pin in (self._find(document) or {}).items() if tool not in removed}
            self._write(target, document, {**kept, **pins})

    def forget(self) -> bool:
        """Forget the server, so that its next use is a first use. False if it was never pinned."""
        if not any(self._key in self._document().get(section, {}) for section in _SECTIONS.values()):
            return False
        with json_file.locked(self.file) as target:
            document = self._document()
            for section in _SECTIONS.values():
                document.get(section, {}).pop(self._key, None)
            json_file.write(target, document)
            return True

    def _document(self) -> dict[str, Any]:
        document = json_file.read_version(self.file, _EXAMPLE, _VERSION)
        for section in _SECTIONS.values():
            if not isinstance(document.get(section, {}), dict):
                json_file.broken(self.file, f"{section}: expected an object as in {_EXAMPLE}")
        return document

    def _find(self, document: dict[str, Any]) -> dict[str, Pin] | None:
        tools = document.get(self._section, {}).get(self._key)
        if tools is None:
            return None
        try:
            return json_file.convert(tools, dict[str, Pin], accept_halves=True)
        except msgspec.ValidationError as error:
            json_file.broken(self.file, f"{self._section}.{self._key}: {error}", cause=error)

    def _write(self, target: Path, document: dict[str, Any], pins: Mapping[str, Pin]) -> None:
        servers = document.get(self._section, {})
        servers[self._key] = {tool: msgspec.to_builtins(pin) for tool, pin in sorted(pins.items())}
        json_file.write(target, {**document, "version": _VERSION, self._section: servers})


def default_pins(server: str) -> ServerPins:
    """The pins in ``~/.gaia``, for a client without a configuration file. Raises ConfigError without a home."""
    return ServerPins(json_file.home_folder(LOCK_FILE_NAME) / LOCK_FILE_NAME, server)


def pins_in(source: Path | None, server: str, file: Path | None = None) -> ServerPins:
    """The pins of a server that is configured in the file `source`, or in memory. Raises ConfigError without a home.

    The user's configuration file uses the server's name alone. Servers of other files, and in memory, are kept apart.
    """
    file = file or json_file.home_folder(LOCK_FILE_NAME) / LOCK_FILE_NAME
    own = source == file.with_name(_CONFIG_NAME)
    return ServerPins(file, server if own else f"{server} in {source or 'memory'}")


logger = get_logger(__name__)


class Review(msgspec.Struct, frozen=True):
    """How a listing differs from what was approved. Names are the server's own, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def unapproved(self) -> frozenset[str]:
        return frozenset(self.added + self.changed)


def compare(approved: Mapping[str, Pin], pins: Mapping[str, Pin], listed: Collection[str]) -> Review:
    """Compare `pins` of some tools with the approved ones. `listed` names all tools, hidden ones too."""
    return Review(
        added=tuple(sorted(pins.keys() - approved.keys())),
        changed=tuple(
            sorted(tool for tool in pins.keys() & approved.keys() if pins[tool].sha256 != approved[tool].sha256)
        ),
        removed=tuple(sorted(approved.keys() - set(listed))),
    )


class PinGate:
    """Compares the tools, prompts or instructions of one server with its pins. Thread-safe.

    The first listing of a server is approved as it is. An unusable lock file is reported, and with ``block`` every tool
    is then withheld.
    """

    def __init__(
        self,
        server: str,
        mode: PinMode,
        pins: Callable[[], ServerPins],
        on_changed: Callable[[ToolDefinitionsChanged], None],
        kind: PinKind = "tools",
    ) -> None:
        """`pins` is called on first need, so a client that pins nothing needs no lock file."""
        self._server = server
        self._kind = kind
        self.mode = mode
        self.blocks = mode == "block"
        self._pins = pins
        self._on_changed = on_changed
        self._reported = Review()
        """The last reported review, so that a restart does not report it again. A race only reports twice."""
        self._problem: str | None = None

    def review(
        self, tools: Mapping[str, MCPTool], listed: Collection[str], seconds: float | None = None
    ) -> frozenset[str]:
        if self.mode == "off":
            return frozenset()
        return self.review_pins({name: pin_of(tool) for name, tool in tools.items()}, listed, seconds)

    def review_pins(
        self, pins: Mapping[str, Pin], listed: Collection[str], seconds: float | None = None
    ) -> frozenset[str]:
        """Report new differences between `pins` and the approved ones. Returns the names that must not be used.

        At the first use of a server it may wait up to `seconds` for the lock file.
        """
        try:
            review = self._compare(pins, listed, seconds)
        except ConfigError as error:
            self._problem = error.message
            logger.error("tool_lock_unusable", server=self._server, error=error.message, blocked=self.blocks)
            return frozenset(pins) if self.blocks else frozenset()
        self._problem = None
        self._report(review)
        return review.unapproved if self.blocks else frozenset()

    def unapproved(self, tools: Mapping[str, MCPTool]) -> frozenset[str]:
        """The tools of an earlier start that are not approved. Approves and reports nothing."""
        if not self.blocks:
            return frozenset()
        try:
            approved = self._pins().of(self._kind).read()
        except ConfigError as error:
            self._problem = error.message
            return frozenset(tools)
        if approved is None:
            # The server's first use is still to come.
            return frozenset()
        return compare(approved, {name: pin_of(tool) for name, tool in tools.items()}, tools).unapproved

    def refusal(self, name: str) -> ToolNotApproved:
        reason = self._problem or (
            f"its definition has changed since it was approved, or it is new: see and approve it with "
            f"`gaia mcp approve {shlex.quote(self._server)}`"
        )
        return ToolNotApproved(f"the {self._kind[:-1]} {name!r} of server {self._server!r} is blocked: {reason}")

    def _compare(self, pins: Mapping[str, Pin], listed: Collection[str], seconds: float | None) -> Review:
        store = self._pins().of(self._kind)
        # An empty list may come from a server that failed to list its tools, so it does not count as the first use.
        approved = store.read_or_pin(pins, seconds) if pins else store.read() or {}
        return compare(approved, pins, listed)

    def _report(self, review: Review) -> None:
        before, self._reported = self._reported, review
        if review in (before, Review()):
            return
        names = msgspec.structs.asdict(review)
        logger.warning("tool_definitions_changed", server=self._server, kind=self._kind, **names, blocked=self.blocks)
        self._on_changed(ToolDefinitionsChanged(self._server, **names, blocked=self.blocks, kind=self._kind))
