"""`CurrentCall` and `CallOrigin`: the application's code that made a call, for its functions that the call needs.

A server may ask a question before it answers. The function that answers runs in a copy of the caller's context
(`contextvars`), on the caller's event loop if it is async, and learns from `current_call` whose question it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace

if TYPE_CHECKING:
    from gaia.mcp.observation.request_spans import Observation
    from gaia.runtime.loop_work import LoopWork


class CurrentCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of the application that a function of the application runs for."""

    server: str
    """This program's name for the server."""
    method: str = "tools/call"
    """The request's method."""
    tool: str | None = None
    """The server's own name for the tool; None for other requests."""
    arguments: Mapping[str, Any] = {}
    """The tool's arguments; empty for other requests."""
    key: str | None = None
    """Names calls that belong together; not used yet."""
    context: Any = None
    """The object that the caller gave as `context`. It is never sent."""
    span: trace.Span | None = None
    """The span of the call; None while nothing is traced, and in `before_call`."""

    # Arguments and context contain the caller's data, which must not get into logs.
    def __repr__(self) -> str:
        return f"<CurrentCall {self.method} {self.tool or ''} of {self.server!r}>"


_current: ContextVar[CurrentCall | None] = ContextVar("gaia_current_call", default=None)


def current_call() -> CurrentCall | None:
    """The call whose question the running function answers.

    None outside such a function. Also None if the server did not say to which of several calls its question belongs:
    a server of the handshake era over pipes, while several calls are under way.
    """
    return _current.get()


class CallOrigin:
    """The context, the loop and the identity of the code that made a call. Thread-safe."""

    __slots__ = ("_call", "_context", "loop")

    def __init__(self, call: CurrentCall | None, context: Context | None, loop: LoopWork | None = None) -> None:
        self._call = call
        self._context = context
        self.loop = loop
        """The event loop of the task that awaits the call; None if a thread waits."""

    @classmethod
    def here(cls, call: CurrentCall) -> CallOrigin:
        return cls(call, copy_context())

    def context(self) -> Context:
        """A copy of the caller's context for a function that answers a question, with the current span of this thread.

        That span, if there is one, is the span of the question.
        """
        if self._context is None:
            return copy_context()
        context, here = self._context.copy(), trace.get_current_span()
        context.run(self._enter, here)
        return context

    def _enter(self, asking: trace.Span) -> None:
        _current.set(self._call)
        if asking.get_span_context().is_valid:
            contexts.attach(trace.set_span_in_context(asking))


NO_ORIGIN = CallOrigin(None, None)


def call_of(
    server: str, method: str, tool: str | None, arguments: Any, context: Any, observation: Observation | None
) -> CurrentCall:
    traced = None if observation is None else observation.context
    return CurrentCall(
        server=server,
        method=method,
        tool=tool,
        arguments=arguments if isinstance(arguments, dict) else {},
        context=context,
        span=None if traced is None else trace.get_current_span(traced),
    )


def common_origin(origins: Iterable[CallOrigin | None]) -> CallOrigin:
    """The origin of a question that belongs to one of several calls: of the only call, or else their common loop."""
    found = [NO_ORIGIN if origin is None else origin for origin in origins]
    if len(found) == 1:
        return found[0]
    loops = {id(origin.loop): origin.loop for origin in found}
    return CallOrigin(None, None, *loops.values()) if len(loops) == 1 else NO_ORIGIN
