"""The way to a host: one is started, and greeted until it answers, and again whenever it was lost."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.link import ClusterLeft, HostGone, HostLink
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_status import PlacedCondition
from gaia.mcp.cluster.wire import Greeting, HostSettings, decode_greeting, encode
from gaia.mcp.errors import MCPError
from gaia.runtime.log import exception_text
from gaia.runtime.redaction import Redactor

_ATTEMPTS, _ATTEMPT_SECONDS = 20, 0.2
_MIN_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 1.0
_GREETING_SECONDS = 0.1
"""That the next host has to answer a greeting, before it gets another one: Ray holds one that comes while the host is
being started for up to two seconds, and fails then."""
_FIRST_REPLACEMENT_SECONDS, _LAST_REPLACEMENT_SECONDS = 0.5, 60.0
"""Before a host takes the place of one that is gone for good. They are doubled from one to the next."""


class PlacedGreeter:
    """For the thread of the loop. What waits for the engine, or asks for settings, runs on the loop's steps."""

    def __init__(
        self,
        context: PlacedContext,
        condition: PlacedCondition,
        loop: ClusterLoop,
        on_greeted: Callable[[HostLink, Greeting, float], object],
        on_failed: Callable[[str], object],
        on_gone: Callable[[str], object],
    ) -> None:
        """`on_greeted` is told of each host that can be used, and when it has answered.

        `on_failed` is told why there will be none: without a cluster, or with a configuration that cannot be used,
        nothing is tried again. `on_gone` is told why a host will never be of use, where another one may be.
        """
        self.link: HostLink | None = None
        """To the host, as soon as the engine has begun to place it."""
        self._context = context
        self._condition = condition
        self._loop = loop
        self._on_greeted = on_greeted
        self._on_failed = on_failed
        self._on_gone = on_gone
        self._replacement_seconds = _FIRST_REPLACEMENT_SECONDS
        self._user = uuid.uuid4().hex
        """By which hosts know this client, among others that may use the same server."""
        self._left_attempts = _ATTEMPTS
        """To find or start a shared host, which others may be ending."""
        self._is_starting = False
        """A thread for steps starts the host."""
        self._is_expecting = False
        """No host has answered a greeting since one was wanted."""
        self._greetings = 0
        """The number of the last one. What becomes of those before it matters only if a host answers."""
        self._on_stopped: Callable[[], object] | None = None
        """Set when no host is wanted any more."""

    def start(self) -> None:
        """Have a host started, and greet it."""
        if self._on_stopped is not None:
            return
        self._is_starting = self._is_expecting = True

        def started() -> None:
            try:
                settings = self._context.settings()
                link = self._context.engine().start(self._context.name, self._context.placement)
            except Exception as error:  # noqa: BLE001 - of ours, of Ray and of what it loads
                reason = error.message if isinstance(error, MCPError) else exception_text(error)
                self._loop.post(lambda: self._not_started(reason))
            else:
                self._loop.post(lambda: self._started(link, settings))

        self._loop.steps.submit(started, keep=True)

    def start_another(self) -> float:
        """Have a host started in the place of one that is gone for good. Returns in how many seconds."""
        link, self.link = self.link, None
        if link is not None:
            # Its actor may be there, and of no use.
            link.kill()

        def start() -> None:
            if link is not None and link.is_left:
                # The application did not leave the cluster for its servers to join it again.
                self._on_failed(str(ClusterLeft()))
            else:
                self.start()

        seconds = self._replacement_seconds
        self._replacement_seconds = min(2 * seconds, _LAST_REPLACEMENT_SECONDS)
        self._loop.alarm(seconds, start)
        return seconds

    def greet_again(self) -> None:
        """Greet the host that takes the place of a lost one, or the same again."""
        self._is_expecting = True
        self._renew()

    def _renew(self) -> None:
        if self._on_stopped is not None or not self._is_expecting:
            return

        def renewed() -> None:
            try:
                settings = self._context.settings()
            except MCPError as error:
                message = error.message
                self._loop.post(lambda: self._on_failed(message))
            else:
                self._loop.post(lambda: self._greet(settings))

        self._loop.steps.submit(renewed, keep=True)

    def stop(self, on_stopped: Callable[[], object]) -> None:
        """No host is wanted any more. `on_stopped` is called as soon as none is being started."""
        self._on_stopped = on_stopped
        if not self._is_starting:
            on_stopped()

    def _not_started(self, reason: str) -> None:
        self._is_starting = False
        if self._on_stopped is not None:
            self._on_stopped()
        else:
            self._on_failed(reason)

    def _started(self, link: HostLink, settings: HostSettings) -> None:
        self._is_starting = False
        self.link = link
        if self._on_stopped is not None:
            self._on_stopped()
        else:
            self._greet(settings)

    def _greet(self, settings: HostSettings) -> None:
        if self.link is None or self._on_stopped is not None or not self._is_expecting:
            return
        self._context.observer.redact = Redactor(settings.launch.secrets)
        settings = msgspec.structs.replace(settings, keep_trying=self._condition.keep_trying, user=self._user)
        self._greetings += 1
        number = self._greetings
        self.link.greet(encode(settings), self._loop.receiver(functools.partial(self._answered, number)))
        since = self._condition.down_since
        if since is not None:
            away = time.monotonic() - since
            self._loop.alarm(max(_GREETING_SECONDS, away / 10), lambda: self._greet_once_more(number))

    def _greet_once_more(self, number: int) -> None:
        """Greet again, whatever becomes of this greeting. A host takes all of them for one."""
        if number == self._greetings:
            self._renew()

    def _answered(self, number: int, answer: Any, failure: BaseException | None, now: float) -> None:
        is_last = number == self._greetings
        if self._on_stopped is not None or not self._is_expecting or (failure is not None and not is_last):
            return
        greeting = None if failure is not None else decode_greeting(answer)
        if (greeting is None and not isinstance(failure, HostGone)) or (greeting is not None and greeting.is_over):
            # Ray would repeat it too, but in steps of a second.
            if is_last:
                self._greet_soon()
            return
        self._is_expecting = False
        if greeting is None:
            self._not_greeted(failure)
        elif greeting.problem is not None:
            # Where it has been ready, another node may do.
            (self._on_gone if self._condition.ever_ready else self._on_failed)(greeting.problem)
        else:
            assert self.link is not None, "it was greeted"
            self._left_attempts = _ATTEMPTS
            self._replacement_seconds = _FIRST_REPLACEMENT_SECONDS
            self._on_greeted(self.link, greeting, now)

    def _not_greeted(self, failure: BaseException | None) -> None:
        """The host is gone for good."""
        if isinstance(failure, ClusterLeft):
            self._on_failed(str(failure))
        elif self._context.placement.is_shared and self._left_attempts:
            # Others have just ended it.
            self._left_attempts -= 1
            self.link = None
            self._loop.alarm(_ATTEMPT_SECONDS, self.start)
        else:
            self._on_gone(f"its actor is gone: {failure}")

    def _greet_soon(self) -> None:
        """Greet again: the longer there has been no host, the later."""
        since = self._condition.down_since
        away = 0.0 if since is None else time.monotonic() - since
        self._loop.alarm(min(max(_MIN_PAUSE_SECONDS, away / 20), _MAX_PAUSE_SECONDS), self._renew)
