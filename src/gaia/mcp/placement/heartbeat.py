"""`Heartbeat`: tells one host again and again that its server is wanted, so that its lease does not end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import Signal
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.mcp.placement.engine import Launch
from gaia.mcp.placement.lease import LEASE_PATH, OWNER, Beat, HostState, fingerprints
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_PER_LEASE = 3
"""Beats within the time of a lease, and how many fail at least before a host is given up."""
_RETRY_SECONDS = 0.25
_LEAVE_SECONDS = 1.0


class Reaction(Protocol):
    """The channel, on the I/O thread."""

    def host_answered(self) -> None:
        """The host extends its lease from now on."""

    def host_lost(self, cause: str) -> None:
        """The host has refused a beat, or did not answer for the time of the lease; `cause` ends a sentence."""

    def host_unreachable(self) -> None:
        """A beat has failed."""


class Heartbeat:
    """Belongs to the I/O thread, except for its public attributes, which other threads read."""

    def __init__(
        self,
        launch: Launch,
        url: str,
        token: str,
        reaction: Reaction,
        leaving: Signal,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leaving` is set when the server is not wanted any more. `url` is the host's, without a path."""
        self._launch = launch
        self._url = Url.parse(url + LEASE_PATH)
        self._token = token
        self._reaction = reaction
        self._leaving = leaving
        self._now = now
        self._owner = secrets.token_hex(16)
        self._answered_at = 0.0
        self._is_accepted = False
        self._failed = 0
        self.state: HostState | None = None
        """The last answer of the host; None before the first one."""
        self.failure = "it has not answered"
        """Why the last beat that failed has failed."""
        self.fence = 0.0
        """When the lease of the host has ended, as far as this program has extended it; 0 if it has not."""
        self.left = Latch()
        """Opened when `run` has ended."""
        self.is_refused = False
        """Whether the host serves other settings."""
        self.was_last = False
        """Whether no other owner wanted the server when this one left."""

    async def run(self, connection: HttpConnection) -> None:
        """Beat until the host is lost, or the server is not wanted any more: then leave."""
        try:
            while True:
                if (cause := await self._beat(connection)) is not None:
                    self._reaction.host_lost(cause)
                    return
                if await self._leaving.within(self._pause()):
                    break
            await self._leave(connection)
        finally:
            connection.close()
            self.left.open()

    def _pause(self) -> float:
        if self._failed:
            return min(_RETRY_SECONDS, self._launch.lease / _PER_LEASE / 2)
        # The first beat extends nothing, so the second follows at once.
        return self._launch.lease / _PER_LEASE if self._is_accepted else 0.0

    async def _beat(self, connection: HttpConnection) -> str | None:
        """Send a beat. Returns why the host is lost, or None."""
        lease, state, sent = self._launch.lease, self.state, self._now()
        if state is None:
            beat = Beat(settings=fingerprints(self._launch.entry, self._token))
        else:
            beat = Beat(clock=state.clock, since=sent - self._answered_at)
            self.fence = sent + lease
        try:
            status, body = await self._ask(connection, "POST", msgspec.json.encode(beat), sent + lease / _PER_LEASE)
        except OSError as error:
            self._failed += 1
            self.failure = str(error)
            logger.debug("beat_failed", server=self._launch.name, error=self.failure)
            self._reaction.host_unreachable()
            # More than one: this program itself may have been stopped meanwhile.
            if self._is_accepted and self._failed >= _PER_LEASE and self._now() - self._answered_at >= lease:
                return f"has not answered for its lease of {lease:g} s"
            return None
        self._failed = 0
        try:
            return self._answered(status, body, is_first=state is None)
        except msgspec.MsgspecError as error:
            return f"answers its heartbeats with something else: {error}"

    def _answered(self, status: int, body: bytes, *, is_first: bool) -> str | None:
        if status == 409:
            self.is_refused = True
            keys = ", ".join(msgspec.json.decode(body, type=list[str]))
            return f"is shared, and runs with other settings; give all programs the same: {keys}"
        if status != 200:
            return "ended with its host, whose lease was over"
        self.state, self._answered_at = msgspec.json.decode(body, type=HostState), self._now()
        if not is_first and not self._is_accepted:
            self._is_accepted = True
            self._reaction.host_answered()
        return None

    async def _leave(self, connection: HttpConnection) -> None:
        try:
            status, body = await self._ask(connection, "DELETE", b"", self._now() + _LEAVE_SECONDS)
            self.was_last = status != 200 or msgspec.json.decode(body, type=HostState).owners == 0
        except (OSError, msgspec.MsgspecError) as error:
            logger.debug("lease_not_left", server=self._launch.name, error=str(error))

    async def _ask(self, connection: HttpConnection, method: str, body: bytes, deadline: float) -> tuple[int, bytes]:
        headers = {OWNER: self._owner, "Content-Type": "application/json"}
        response: Response
        with await connection.request(method, self._url, headers, body, deadline=deadline) as response:
            return response.status, await response.read()
