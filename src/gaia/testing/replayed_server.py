"""A server of a cassette: chooses the answer to each request, and plays the server in a channel."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Generator, Sequence
from typing import Any

from gaia.mcp.errors import StartFailed
from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND
from gaia.mcp.rpc.channel import ChannelListener, Ending, Outgoing
from gaia.mcp.transports.base import InProcessServer, open_channels
from gaia.runtime.clock import Clock
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import EngineThread
from gaia.testing.cassette import (
    SUBSCRIBE,
    SUBSCRIBED,
    RecordedExchange,
    RecordedServer,
    Start,
    Step,
    is_greeting,
    is_listing,
    without_meta,
)
from gaia.testing.in_memory import InMemoryChannel, InMemoryTransport
from gaia.testing.mismatch import different_answer, equals, not_recorded

_MISMATCH = -32000

_JOIN_SECONDS = 2.0


class _Played:
    """One exchange of the cassette, and whether it was played. The server's lock guards the flags."""

    def __init__(self, exchange: RecordedExchange, start: _PlayedStart) -> None:
        self.exchange = exchange
        self.start = start
        self.asked = False
        self.done = False

    def matches(self, method: str, params: dict[str, Any]) -> bool:
        exchange = self.exchange
        # A greeting describes the client, which may differ from the recorded one.
        return exchange.request == method and (is_greeting(method) or equals(exchange.params, params))


class _PlayedStart:
    def __init__(self, start: Start) -> None:
        self.recorded = start
        self.exchanges = [_Played(exchange, self) for exchange in start.exchanges]


class ReplayedServer(InProcessServer):
    """A server of a cassette. Its starts are played one after the other, for any of its clients."""

    def __init__(
        self,
        place: str,
        server: RecordedServer,
        on_mismatch: Callable[[str], None],
        clock: Clock | None,
        ask: Callable[[str, dict[str, Any]], RecordedExchange] | None = None,
    ) -> None:
        """`place` is the cassette and the server, for messages. `on_mismatch` receives each difference.

        ``ask(method, params)`` answers a call that was not recorded.
        """
        self.place = place
        self.ask = ask
        self.clock = clock
        self.on_mismatch = on_mismatch
        self._lock = reentrant_lock()
        self._starts = [_PlayedStart(start) for start in server.starts]
        self._started = 0

    def __repr__(self) -> str:
        return f"<ReplayedServer of {self.place}>"

    def transport(self, timeout: float) -> InMemoryTransport:
        def start(listener: ChannelListener, name: str) -> _ReplayChannel:
            return _ReplayChannel(self, self.begin(), listener, name)

        return InMemoryTransport("cassette", timeout, start)

    def begin(self) -> _PlayedStart:
        """The next start. Raises StartFailed if it failed in the recording, or was not recorded."""
        with self._lock:
            self._started += 1
            number = self._started
        if number > len(self._starts):
            count = "1 start was" if len(self._starts) == 1 else f"{len(self._starts)} starts were"
            raise StartFailed(f"{self.place}: {count} recorded, and this is number {number}")
        start = self._starts[number - 1]
        if start.recorded.failed is not None:
            raise StartFailed(start.recorded.failed)
        return start

    def take(self, start: _PlayedStart, method: str, params: dict[str, Any]) -> _Played | None:
        """The exchange to play for a request during `start`; None if no exchange is left for it."""
        with self._lock:
            found = _next(start.exchanges, method, params)
            if found is None and is_listing(method):
                # Listings may be requested more often than they were recorded.
                found = next((one for one in reversed(start.exchanges) if one.matches(method, params)), None)
            if found is None and not is_greeting(method):
                # Another thread's call may come later than in the recording, after the server has ended.
                found = _next(self._exchanges(), method, params)
            if found is not None:
                found.asked = True
            return found

    def done(self, played: _Played) -> None:
        with self._lock:
            played.done = True

    def is_over(self, start: _PlayedStart) -> bool:
        """Whether the server ends now, as it did in the recording; see `Replay`."""
        if start.recorded.end is None:
            return False
        with self._lock:
            if crashed := [one for one in start.exchanges if one.exchange.crashed]:
                # Listings may happen at any time.
                calls = [one for one in crashed if not is_listing(one.exchange.request)]
                return all(one.asked for one in calls or crashed)
            listed = {one.exchange.request for one in start.exchanges if one.done}
            return all(one.done or one.exchange.request in listed for one in start.exchanges)

    def mismatch(self, method: str, params: dict[str, Any]) -> str:
        return not_recorded(self.place, method, params, [one.exchange for one in self._exchanges()])

    def _exchanges(self) -> list[_Played]:
        return [one for start in self._starts for one in start.exchanges]


def _next(exchanges: Sequence[_Played], method: str, params: dict[str, Any]) -> _Played | None:
    matching = [one for one in exchanges if not one.asked and one.matches(method, params)]
    # An exact match is preferred, because a mask matches any text, and another request may need this exchange.
    exact = (one for one in matching if one.exchange.params == params)
    return next(exact, next(iter(matching), None))


_Script = Generator[str, dict[str, Any], str | None]
"""The server's next messages. It yields the id of each request whose answer it needs, and receives the answer."""


class _ReplayChannel(InMemoryChannel):
    """One start of the server, whose messages its own thread plays."""

    def __init__(self, server: ReplayedServer, start: _PlayedStart, listener: ChannelListener, name: str) -> None:
        super().__init__(listener)
        self._server = server
        self._start = start
        self._is_over = False
        """Set under the lock, which decides whether a message is still written."""
        self._inbox: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        """Messages that are not written yet. If the server ends first, they go to the next start."""
        # Only the thread uses the attributes below.
        self._waiting: dict[str, _Script] = {}
        self._asked = 0
        self._greeted = False
        self._subscription: int | None = None
        self._thread = EngineThread(self._run, f"mcp-{name}-replay", listener.channel_ended)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StartFailed(f"no thread for the server: {error}") from error
        open_channels.add(self)

    # For the connection and the supervisor.

    def is_alive(self) -> bool:
        return not self.is_forked and not self._is_over

    def send(self, item: Outgoing) -> bool:
        if not self._is_over:
            self._inbox.put(item)
        return True

    def stop_writing(self) -> bool:
        with self._lock:
            self._is_over = True
        return True

    def close(self, grace: float) -> Ending:  # noqa: ARG002 - there is nothing to wait for
        if not self.is_forked:
            self.stop_writing()
            self._inbox.put(None)
            self._thread.join(_JOIN_SECONDS)
            open_channels.discard(self)
        return self._ending or Ending()

    # Everything below runs on the thread.

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            with self._lock:
                is_written = not self._is_over and item.begin_write()
            if is_written:
                self._play(json.loads(item.frame))
                if self._ending is not None:
                    self._listener.channel_ended()

    def _play(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            script = self._waiting.pop(message["id"], None)
            if script is not None:
                self._advance(script, {key: message[key] for key in ("result", "error") if key in message})
        elif method == "ping":
            self._send(id=message["id"], result={})
        elif "id" in message:
            self._asked_for(method, message)

    def _asked_for(self, method: str, message: dict[str, Any]) -> None:
        params = without_meta(message.get("params"))
        if method == SUBSCRIBE:
            self._subscription = message["id"]
            self._send(method=SUBSCRIBED, params=self._with_subscription({}))
            self._greet()
            return
        if not (is_greeting(method) or is_listing(method)):
            self._greet()
        if (played := self._server.take(self._start, method, params)) is not None:
            if played.exchange.crashed and played.start is not self._start:
                self._end(played.start.recorded.end)
            self._end_if_over()
            self._advance(self._perform(message, played))
        elif is_greeting(method):
            # A server of another era answers like this.
            self._refuse(message, METHOD_NOT_FOUND, f"{method} was not recorded")
        elif self._server.ask is not None:
            self._advance(self._perform(message, _Played(self._server.ask(method, params), self._start)))
        else:
            text = self._server.mismatch(method, params)
            self._server.on_mismatch(text)
            self._refuse(message, _MISMATCH, text)
        if is_listing(method) and not any(step.subscribed for step in self._start.recorded.meanwhile):
            self._greet()

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._advance(self._steps(self._start.recorded.meanwhile, None))

    def _perform(self, message: dict[str, Any], played: _Played) -> _Script:
        exchange, identifier = played.exchange, message["id"]
        meta = (message.get("params") or {}).get("_meta") or {}
        problem = yield from self._steps(exchange.meanwhile, meta.get("progressToken"))
        self._server.done(played)
        # Before the answer, after which the next call must no longer be written here.
        self._end_if_over()
        if problem is not None:
            self._refuse(message, _MISMATCH, problem)
        elif exchange.failed is not None:
            self._listener.request_failed(identifier, exchange.failed.error())
        elif exchange.error is not None:
            self._send(id=identifier, error=exchange.error)
        elif exchange.result is not None:
            self._send(id=identifier, result=exchange.result)
        return (yield from self._steps(exchange.afterwards, None))

    def _steps(self, steps: Sequence[Step], token: int | str | None) -> _Script:
        """Send the server's own messages. Returns a message if the application answered one of them differently."""
        problem = None
        for step in steps:
            if step.request is not None:
                self._asked += 1
                identifier = f"replay-{self._asked}"
                self._send(id=identifier, method=step.request, params=step.params)
                if step.answer is not None and not equals(step.answer, given := (yield identifier)):
                    problem = different_answer(self._server.place, step.request, step.answer, given)
                    self._server.on_mismatch(problem)
            elif step.notification != "notifications/progress":
                params = self._with_subscription(step.params) if step.subscribed else step.params
                self._send(method=step.notification, params=params)
            elif token is not None:
                self._send(method=step.notification, params={**step.params, "progressToken": token})
        return problem

    def _with_subscription(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": {**params.get("_meta", {}), SUBSCRIPTION_ID: self._subscription}}

    def _advance(self, script: _Script, answer: dict[str, Any] | None = None) -> None:
        try:
            # None begins it.
            identifier = script.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            return
        self._waiting[identifier] = script

    def _refuse(self, message: dict[str, Any], code: int, text: str) -> None:
        self._send(id=message["id"], error={"code": code, "message": text})

    def _send(self, **members: Any) -> None:
        self._listener.message_received(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def _end_if_over(self) -> None:
        if self._server.is_over(self._start):
            self._end(self._start.recorded.end)

    def _end(self, ending: Ending | None) -> None:
        """Write nothing from now on. The connection is notified when earlier messages are sent."""
        with self._lock:
            if not self._is_over:
                self._is_over, self._ending = True, ending
