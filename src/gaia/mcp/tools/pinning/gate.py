"""Compares what a server lists with what was approved, and decides what may be used of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping

import msgspec

from gaia.mcp.config.server_config import PinMode
from gaia.mcp.errors import ConfigError, ToolNotApproved
from gaia.mcp.supervision.events import ToolDefinitionsChanged
from gaia.mcp.tools.pinning.lock_file import Pin, PinKind, ServerPins, pin_of
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.log import get_logger

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
    """`pins` are those of the tools in question; `listed` names all tools of the server, hidden ones too."""
    return Review(
        added=tuple(sorted(pins.keys() - approved.keys())),
        changed=tuple(
            sorted(tool for tool in pins.keys() & approved.keys() if pins[tool].sha256 != approved[tool].sha256)
        ),
        removed=tuple(sorted(approved.keys() - set(listed))),
    )


class PinGate:
    """The pins of one server's tools, prompts or instructions at work. Thread-safe.

    The first listing of a server that is not in the lock file is approved as it is. A lock file that cannot be used is
    reported, and with ``block`` nothing is approved then.
    """

    def __init__(
        self,
        server: str,
        mode: PinMode,
        pins: Callable[[], ServerPins],
        on_changed: Callable[[ToolDefinitionsChanged], None],
        kind: PinKind = "tools",
    ) -> None:
        """`pins` is called when the pins are first needed, so a client that pins nothing needs no lock file."""
        self._server = server
        self._kind = kind
        self.mode = mode
        self.blocks = mode == "block"
        """Whether what is not approved is withheld. Each call asks."""
        self._pins = pins
        self._on_changed = on_changed
        self._reported = Review()
        """What was reported last, so that a restart does not repeat it. Only for comparing: a race reports twice."""
        self._problem: str | None = None

    def review(
        self, tools: Mapping[str, MCPTool], listed: Collection[str], seconds: float | None = None
    ) -> frozenset[str]:
        """`review_pins` of the tools that may be used; `listed` names all tools, denied ones too."""
        if self.mode == "off":
            return frozenset()
        return self.review_pins({name: pin_of(tool) for name, tool in tools.items()}, listed, seconds)

    def review_pins(
        self, pins: Mapping[str, Pin], listed: Collection[str], seconds: float | None = None
    ) -> frozenset[str]:
        """Compare `pins` with what was approved, and report what is new about them.

        Returns the names of what must not be used. May wait for the lock file, up to `seconds`, at the first use of a
        server only.
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
        """Which of the tools that the server had at an earlier start must not be used. Approves and reports nothing."""
        if not self.blocks:
            return frozenset()
        try:
            approved = self._pins().of(self._kind).read()
        except ConfigError as error:
            self._problem = error.message
            return frozenset(tools)
        if approved is None:
            # Its first use is still to come.
            return frozenset()
        return compare(approved, {name: pin_of(tool) for name, tool in tools.items()}, tools).unapproved

    def refusal(self, name: str) -> ToolNotApproved:
        """Why a tool or prompt that was not let through cannot be used."""
        reason = self._problem or (
            f"its definition has changed since it was approved, or it is new: see and approve it with "
            f"`gaia mcp approve {shlex.quote(self._server)}`"
        )
        return ToolNotApproved(f"the {self._kind[:-1]} {name!r} of server {self._server!r} is blocked: {reason}")

    def _compare(self, pins: Mapping[str, Pin], listed: Collection[str], seconds: float | None) -> Review:
        store = self._pins().of(self._kind)
        # A server that lists nothing may just be unable to, so its first use is still to come.
        approved = store.read_or_pin(pins, seconds) if pins else store.read() or {}
        return compare(approved, pins, listed)

    def _report(self, review: Review) -> None:
        before, self._reported = self._reported, review
        if review in (before, Review()):
            return
        names = msgspec.structs.asdict(review)
        logger.warning("tool_definitions_changed", server=self._server, kind=self._kind, **names, blocked=self.blocks)
        self._on_changed(ToolDefinitionsChanged(self._server, **names, blocked=self.blocks, kind=self._kind))
