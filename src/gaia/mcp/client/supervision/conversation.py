"""Drives a protocol exchange over a connection by events, so that the worker never waits for a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gaia.mcp.client.protocol.exchange import Exchange, Notify
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.errors import MCPError, ServerCrashed

__all__ = ["Conversation"]

T = TypeVar("T")


class Conversation(Generic[T]):
    """One exchange under way. Belongs to the worker thread, which hands it each answered call."""

    def __init__(
        self,
        exchange: Exchange[T],
        connection: Connection,
        make_call: Callable[[Conversation[T], str, dict[str, Any] | None, float | None], Call],
        on_result: Callable[[T], None],
        on_error: Callable[[MCPError], None],
    ) -> None:
        """`make_call(conversation, method, params, timeout)` makes a call whose end is reported back to `answered`."""
        self.connection = connection
        self._exchange = exchange
        self._make_call = make_call
        self._on_result = on_result
        self._on_error = on_error

    def start(self) -> None:
        self._advance(lambda: next(self._exchange))

    def answered(self, call: Call) -> None:
        error = call.error
        if error is None:
            self._advance(lambda: self._exchange.send(call.result))
        else:
            self._advance(lambda: self._exchange.throw(error))

    def _advance(self, resume: Callable[[], Any]) -> None:
        try:
            step = resume()
            while isinstance(step, Notify):
                self.connection.notify(step.method, step.params)
                step = self._exchange.send(None)
        except StopIteration as stop:
            self._on_result(stop.value)
        except MCPError as error:
            self._on_error(error)
        else:
            call = self._make_call(self, step.method, step.params, step.timeout)
            if not self.connection.submit(call):
                call.finish(error=ServerCrashed("the server ended during the exchange"))
