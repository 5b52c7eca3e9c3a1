"""Requests of one client, however many round trips each takes.

The deadline of a request is that of each round trip. How long people think between them does not count; they have
their own time (`ServerRequests`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gaia.cancellation import current_scope
from gaia.mcp.client.protocol.rounds import MAX_ROUNDS, InputRequired, needs_input
from gaia.mcp.client.protocol.stateless_era import STATELESS_REVISIONS
from gaia.mcp.client.response_cache import CACHEABLE, ResponseCache
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.session import Session
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.caller import SCOPE_CANCELLED, CallFuture, OnDone, Outcome
from gaia.mcp.client.supervision.client_request import ClientRequest
from gaia.mcp.client.supervision.input_requests import InputRequests
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, UrlElicitationRequired

__all__ = ["RoundTrips"]

NOTHING: Outcome = {}


class RoundTrips:
    """A session whose requests have results, and nothing in between. Thread-safe."""

    def __init__(self, session: Session, server_requests: ServerRequests, cache: ResponseCache, clock: Clock) -> None:
        self.session = session
        self.server_requests = server_requests
        self._cache = cache
        self._clock = clock

    def request(self, wanted: ClientRequest) -> Outcome:
        """Make a request and wait for its result. Raises `MCPError`."""
        keep: Callable[[Outcome], None] | None = None
        if wanted.method in CACHEABLE:
            cached = self._cache.get(wanted.method, wanted.params)
            if cached is not None:
                return cached
            keep = self._cache.keeper(wanted.method, wanted.params)
        try:
            result = self.session.request(wanted)
            if "resultType" in result and self.is_unfinished(result):
                # What answers went into must not be used again.
                result, keep = self._go_on(wanted, result), None
        except UrlElicitationRequired as error:
            self.note_urls(error)
            raise
        if keep is not None and self._is_stateless():
            keep(result)
        return result if wanted.check is None else checked(wanted, result)

    def _go_on(self, wanted: ClientRequest, result: Outcome) -> Outcome:
        """The result, after the first answer to a request turned out not to be one."""
        original = wanted.params
        for _ in range(MAX_ROUNDS - 1):
            required = InputRequired.from_result(result)
            wanted = msgspec.structs.replace(wanted, params=required.params(original, self._ask_for_input(required)))
            result = self.session.request(wanted)
            if not self.is_unfinished(result):
                return result
        raise too_many_rounds(wanted)

    def submit(self, wanted: ClientRequest, lane: Lane, on_done: OnDone | None = None) -> CallFuture:
        """Make a request without waiting; see `Session`."""
        return _Submission(self, wanted, lane, on_done).start()

    def is_unfinished(self, result: Outcome) -> bool:
        return needs_input(result) and self._is_stateless()

    def _is_stateless(self) -> bool:
        profile = self.session.profile
        return profile is not None and profile.protocol_version in STATELESS_REVISIONS

    def note_urls(self, error: UrlElicitationRequired) -> None:
        for elicitation in error.elicitations:
            self.server_requests.note_url(elicitation.get("elicitationId"))

    def _ask_for_input(self, required: InputRequired) -> Outcome:
        input_requests = InputRequests(self.server_requests, required.requests or {})
        scope = current_scope()
        forget = (
            None if scope is None else scope.on_cancel(lambda: input_requests.cancel(CallCancelled(SCOPE_CANCELLED)))
        )
        try:
            input_requests.start()
            input_requests.wait(self._clock)
        except BaseException:
            input_requests.cancel(CallCancelled("the caller was interrupted"))
            raise
        finally:
            if forget is not None:
                forget()
        if input_requests.error is not None:
            raise input_requests.error
        return input_requests.answers


class _Submission:
    """One submitted request. Each of its steps runs when the one before is over, on its lane."""

    def __init__(self, trips: RoundTrips, wanted: ClientRequest, lane: Lane, on_done: OnDone | None) -> None:
        self._trips = trips
        self._wanted = wanted
        self._lane = lane
        self._on_done = on_done
        self._rounds = 0
        self._future = CallFuture()

    def start(self) -> CallFuture:
        self._send(self._wanted)
        return self._future

    def _send(self, wanted: ClientRequest) -> None:
        self._rounds += 1
        self._trips.session.submit(wanted, self._lane, self._future, self._goes_on, self._on_done)

    def _goes_on(self, error: MCPError | None, result: Outcome) -> bool:
        """Told the outcome of a round, on the thread that ends it; whether there will be another one."""
        if isinstance(error, UrlElicitationRequired):
            self._trips.note_urls(error)
        if error is not None:
            return False
        if self._trips.is_unfinished(result):
            self._lane.post(lambda: self._ask_for_input(result))
        elif self._wanted.check is not None:
            self._lane.post(lambda: self._check(result))
        else:
            return False
        return True

    def _check(self, result: Outcome) -> None:
        try:
            self._end(None, checked(self._wanted, result))
        except MCPError as error:
            self._end(error)

    def _ask_for_input(self, result: Outcome) -> None:
        if self._rounds == MAX_ROUNDS:
            self._end(too_many_rounds(self._wanted))
            return
        try:
            required = InputRequired.from_result(result)
        except InvalidResponse as error:
            self._end(error)
            return
        input_requests = InputRequests(
            self._trips.server_requests,
            required.requests or {},
            lambda done: self._lane.post(lambda: self._input_arrived(required, done)),
        )
        self._future.attach(input_requests.cancel)
        input_requests.start()
        self._trips.session.watch(input_requests)

    def _input_arrived(self, required: InputRequired, input_requests: InputRequests) -> None:
        if input_requests.error is not None:
            self._end(input_requests.error)
            return
        params = required.params(self._wanted.params, input_requests.answers)
        try:
            self._send(msgspec.structs.replace(self._wanted, params=params))
        except MCPError as error:
            self._end(error)

    def _end(self, error: MCPError | None, result: Outcome = NOTHING) -> None:
        if self._on_done is not None:
            self._on_done(error, result)
        self._future.complete(error, result)


def checked(wanted: ClientRequest, result: Outcome) -> Outcome:
    """The result, unless it is not what was promised; then raises that."""
    problem = None if wanted.check is None else wanted.check(result)
    if problem is not None:
        raise problem
    return result


def too_many_rounds(wanted: ClientRequest) -> InvalidResponse:
    return InvalidResponse(f"{wanted.method}: the server still requires input after {MAX_ROUNDS} rounds")
