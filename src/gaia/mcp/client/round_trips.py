"""Requests of one client, however many round trips each takes.

The deadline of a request is that of each round trip. How long people think between them does not count; they have
their own time (`Questions`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gaia.cancellation import current_scope
from gaia.mcp.client.protocol.rounds import MOST_ROUNDS, InputRequired, needs_input
from gaia.mcp.client.protocol.stateless_era import STATELESS_REVISIONS
from gaia.mcp.client.response_cache import CACHEABLE, ResponseCache
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.session import Session
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.caller import SCOPE_CANCELLED, CallFuture, OnDone, Outcome
from gaia.mcp.client.supervision.client_request import ClientRequest
from gaia.mcp.client.supervision.gathering import Gathering
from gaia.mcp.client.supervision.questions import Questions
from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, UrlElicitationRequired

__all__ = ["RoundTrips"]

NOTHING: Outcome = {}


class RoundTrips:
    """A session whose requests have results, and nothing in between. Thread-safe."""

    def __init__(self, session: Session, questions: Questions, cache: ResponseCache, clock: Clock) -> None:
        self.session = session
        self.questions = questions
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
        for _ in range(MOST_ROUNDS - 1):
            required = InputRequired.from_result(result)
            wanted = msgspec.structs.replace(wanted, params=required.params(original, self._gather(required)))
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
            self.questions.note_url(elicitation.get("elicitationId"))

    def _gather(self, required: InputRequired) -> Outcome:
        gathering = Gathering(self.questions, required.requests or {})
        scope = current_scope()
        forget = None if scope is None else scope.on_cancel(lambda: gathering.cancel(CallCancelled(SCOPE_CANCELLED)))
        try:
            gathering.start()
            gathering.wait(self._clock)
        except BaseException:
            gathering.cancel(CallCancelled("the caller was interrupted"))
            raise
        finally:
            if forget is not None:
                forget()
        if gathering.error is not None:
            raise gathering.error
        return gathering.answers


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
            self._lane.post(lambda: self._gather(result))
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

    def _gather(self, result: Outcome) -> None:
        if self._rounds == MOST_ROUNDS:
            self._end(too_many_rounds(self._wanted))
            return
        try:
            required = InputRequired.from_result(result)
        except InvalidResponse as error:
            self._end(error)
            return
        gathering = Gathering(
            self._trips.questions,
            required.requests or {},
            lambda done: self._lane.post(lambda: self._gathered(required, done)),
        )
        self._future.attach(gathering.cancel)
        gathering.start()
        self._trips.session.watch(gathering)

    def _gathered(self, required: InputRequired, gathering: Gathering) -> None:
        if gathering.error is not None:
            self._end(gathering.error)
            return
        params = required.params(self._wanted.params, gathering.answers)
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
    return InvalidResponse(f"{wanted.method}: the server still requires input after {MOST_ROUNDS} rounds")
