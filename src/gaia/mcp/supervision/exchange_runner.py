"""Runs protocol exchanges over a connection by events, so that the supervisor never waits for a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from gaia.mcp.errors import CallTimeout, MCPError, ServerCrashed
from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.exchange import Exchange, Send, SetProtocolVersion, Step
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.runtime.clock import Clock

T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class ExchangeRunner(Generic[T]):
    """One exchange. Belongs to the supervisor's thread, which calls `answered` for each call that has ended."""

    run: RunExchange
    exchange: Exchange[T]
    on_result: Callable[[T], None]
    on_error: Callable[[MCPError], None]
    limit: float
    """The deadline of steps without a timeout of their own, a reading of the clock."""
    late: str | None
    """Begins the message of a missed `limit`."""
    call: Call | None = None
    _is_limited = False
    _observation: Observation | None = None

    def start(self) -> None:
        self._advance(lambda: next(self.exchange))

    def answered(self, call: Call) -> None:
        self._advance(lambda: self._take(call))

    def _take(self, call: Call) -> Step:
        """Give the answer to the exchange. Only afterwards is it known whether the exchange expected an error."""
        handled = True
        if self.late is not None and self._is_limited and isinstance(call.error, CallTimeout):
            # The remaining time of all steps is not a configured number, so the message does not show it.
            call.error.message = f"{self.late}: {call.method} was not answered"
        try:
            return self.exchange.send(call.result) if call.error is None else self.exchange.throw(call.error)
        except MCPError:
            handled = False
            raise
        finally:
            self._observed(call.error, call.result, handled=handled)

    def _observed(self, error: MCPError | None, result: dict[str, Any], *, handled: bool) -> None:
        observation, self._observation = self._observation, None
        if observation is not None:
            observation.ended(error, result, handled=handled)

    def _advance(self, resume: Callable[[], Step]) -> None:
        try:
            step = resume()
            while not isinstance(step, Send):
                if isinstance(step, SetProtocolVersion):
                    self.run.connection.set_protocol_version(step.protocol)
                else:
                    self.run.connection.notify(step.method, step.params)
                step = self.exchange.send(None)
        except StopIteration as stop:
            if self.run.connection.state is not ConnectionState.CLOSED:
                self.on_result(stop.value)
        except MCPError as error:
            if self.run.connection.state is not ConnectionState.CLOSED:
                error.mask(self.run.connection.redact)
                self.on_error(error)
        else:
            self._send(step)

    def _send(self, step: Send) -> None:
        observation = self._observation = self.run.connection.observe(step.method, step.params)

        def done(call: Call) -> None:
            observation.stop()
            self.run.post(CallAnswered(self, call))
            # So that it is posted only once.
            call.on_done = None

        now = self.run.clock.monotonic()
        self._is_limited = step.timeout is None
        self.call = call = Call(
            self.run.next_id(),
            step.method,
            observation.prepare(step.params),
            now,
            max(0.0, self.limit - now) if step.timeout is None else step.timeout,
            bound=True,
            on_done=done,
            observer=observation,
        )
        observation.numbered(call.id)
        if not self.run.connection.submit(call):
            call.finish(error=ServerCrashed("the server ended during the exchange"))
        elif not call.is_standing:
            # Not earlier: if `submit` raised, the thread for deadlines would keep a call that no connection has.
            self.run.watch(call)
        else:
            # The answer comes in hours, if at all: a span or a duration for it would have no meaning.
            self._observed(None, {}, handled=False)


class CallAnswered(msgspec.Struct, frozen=True):
    runner: ExchangeRunner[Any]
    call: Call

    def __call__(self) -> None:
        self.runner.answered(self.call)


class RunExchange(msgspec.Struct, frozen=True):
    """Starts exchanges on one connection. Belongs to the supervisor's thread."""

    connection: Connection
    clock: Clock
    timeout: float
    """Seconds for a whole exchange, except for steps with timeouts of their own."""
    next_id: Callable[[], int]
    watch: Callable[[Call], None]
    post: Callable[[CallAnswered], None]
    """Has the supervisor run the task. Called on the thread that ends a call."""

    def __call__(
        self,
        exchange: Exchange[T],
        on_result: Callable[[T], None],
        on_error: Callable[[MCPError], None],
        timeout: float | None = None,
        late: str | None = None,
    ) -> ExchangeRunner[T]:
        """Begin an exchange. Its outcome is dropped if the connection is lost meanwhile.

        `timeout` replaces this object's timeout; `late` begins the message of the error if it takes longer.
        """
        limit = self.clock.monotonic() + (self.timeout if timeout is None else timeout)
        runner = ExchangeRunner(self, exchange, on_result, on_error, limit, late)
        runner.start()
        return runner
