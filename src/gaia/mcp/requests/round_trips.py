"""Requests of one client, however many round trips each takes.

The deadline of a request is that of each round trip. How long people think between them does not count; they have
their own time (`ServerRequests`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gaia.mcp.errors import CallCancelled, InvalidResponse, JsonRpcError, MCPError, UrlElicitationRequired
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.exchange import Exchange, Send, drive, paginate
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.protocol.rounds import InputRequired, RequestRounds, needs_input
from gaia.mcp.requests.caller import SCOPE_CANCELLED, CallFuture, Outcome, end
from gaia.mcp.requests.client_request import CallOptions, ClientRequest
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.requests.response_cache import CACHEABLE, ResponseCache
from gaia.mcp.requests.session_requests import Requests
from gaia.mcp.supervision.callbacks import Callbacks
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.runtime.cancellation import current_scope
from gaia.runtime.clock import Clock
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.threads import DaemonPool, PoolExhausted

logger = get_logger(__name__)

T = TypeVar("T")

NOTHING: Outcome = {}


class RoundTrips:
    """A session whose requests have results, and nothing in between. Thread-safe."""

    def __init__(
        self,
        session: Requests,
        server_requests: ServerRequests,
        cache: ResponseCache,
        observer: Observer,
        clock: Clock,
        steps: DaemonPool,
    ) -> None:
        """`steps` runs what is to be done between the round trips of submitted requests."""
        self.session = session
        self.steps = steps
        self.server_requests = server_requests
        self.cache = cache
        self._observer = observer
        self._clock = clock

    def request(self, request: ClientRequest) -> Outcome:
        """Make a request and wait for its result; ends its observation. Raises `MCPError`."""
        result = NOTHING
        failure: BaseException | None = None
        try:
            keep: Callable[[Outcome], None] | None = None
            if request.method in CACHEABLE:
                cached = self.cache.get(request.method, request.params)
                if cached is not None:
                    result = cached
                    return result
                keep = self.cache.keeper(request.method, request.params)
            answer = self.session.request(request)
            if "resultType" in answer and self.is_unfinished(answer):
                # A result that answers of the application went into must not be used again.
                answer, keep = self._continue(request, answer), None
            if keep is not None and self.is_stateless:
                keep(answer)
            if request.check is not None:
                check(request, answer)
            result = answer
        except BaseException as error:
            if isinstance(error, UrlElicitationRequired):
                self.note_urls(error)
            failure = error
            raise
        finally:
            if request.observation is not None:
                request.observation.ended(failure, result)
        return result

    def run(self, exchange: Exchange[T]) -> T:
        """Run an exchange in this thread; its timeouts are in seconds. Raises `MCPError`."""
        return drive(exchange, lambda step: self.request(self.new_request(step)))

    def list_all(self, method: str, key: str) -> Exchange[list[Any]]:
        """The items of all pages of a listing; `key` is what a page calls them."""
        try:
            return (yield from paginate(method, key))
        except JsonRpcError as error:
            # A cursor of a page that was kept may mean nothing any more ("Caching").
            if error.code != INVALID_PARAMS or not self.cache.forget(method):
                raise
            return (yield from paginate(method, key))

    def new_request(self, step: Send) -> ClientRequest:
        """The request of a step, which is never a tool call."""
        observation = self._observer.begin(step.method, step.params, target=step.target)
        params = observation.prepare(step.params)
        return ClientRequest(step.method, params, CallOptions(step.timeout), observation=observation)

    def _continue(self, request: ClientRequest, answer: Outcome) -> Outcome:
        """The result, after the first answer to a request turned out not to be one."""
        rounds = RequestRounds(request.method, request.params)
        try:
            while self.is_unfinished(answer):
                required = rounds.required(answer)
                params = rounds.next_params(required, self._ask_for_input(required))
                answer = self.session.request(msgspec.structs.replace(request, params=params))
        except MCPError as error:
            if (failure := rounds.failed(error)) is not error:
                raise failure from error
            raise
        return answer

    def submit_step(self, step: Send, lane: Callbacks) -> CallFuture:
        """Make the request of one step of an exchange without waiting."""
        return self.submit(self.new_request(step), lane)

    def submit(self, request: ClientRequest, lane: Callbacks) -> CallFuture:
        """Make a request without waiting; see `Session`. Ends its observation."""
        submission = _Submission(self, request, lane)
        try:
            future = submission.start()
        except BaseException as error:
            # Params that are no JSON, say, or Ctrl-C in this thread.
            is_ended = submission.future.cancel() or submission.future.done()
            if request.observation is not None and not is_ended:
                request.observation.ended(error, {})
            raise
        return future

    def is_unfinished(self, result: Outcome) -> bool:
        return needs_input(result) and self.is_stateless

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks the stateless era, as far as it is known."""
        profile = self.session.profile
        return profile is not None and profile.era.is_stateless

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
    """One submitted request. Each of its steps runs when the one before is over, and none waits for user code."""

    def __init__(self, trips: RoundTrips, request: ClientRequest, lane: Callbacks) -> None:
        self._trips = trips
        self._request = request
        self._rounds = RequestRounds(request.method, request.params)
        self.future = CallFuture(lane)
        self._keep: Callable[[Outcome], None] | None = None
        """What to do with the result of the first round, if it may be used again."""

    def start(self) -> CallFuture:
        method, params = self._request.method, self._request.params
        if method in CACHEABLE:
            cached = self._trips.cache.get(method, params)
            if cached is not None:
                self._end(None, cached)
                return self.future
            self._keep = self._trips.cache.keeper(method, params)
        self._send(self._request)
        return self.future

    def _send(self, request: ClientRequest) -> None:
        self._trips.session.submit(request, self.future, self._goes_on)

    def _goes_on(self, error: MCPError | None, answer: Outcome) -> bool:
        """Told the outcome of a round, on the thread that ends it; whether the request goes on after it."""
        if isinstance(error, UrlElicitationRequired):
            self._trips.note_urls(error)
        if error is not None:
            failure = self._rounds.failed(error)
            if failure is not error:
                self._end(failure)
            return failure is not error
        keep, self._keep = self._keep, None
        if self._trips.is_unfinished(answer):
            # A result that answers of the application went into must not be used again.
            self._next(lambda: self._ask_for_input(answer))
        elif keep is not None and self._trips.is_stateless:
            # It is encoded for the cache, which the thread that ends the round has no time for.
            self._next(lambda: self._keep_and_end(keep, answer))
        elif (check := self._request.check) is not None and check.fails_call:
            self._next(lambda: self._check(answer), check.submit)
        else:
            if check is not None:
                check.note(answer)
            return False
        return True

    def _next(self, step: Callable[[], None], submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Run the next step soon, on a thread for steps if `submit` knows no other."""

        def guarded() -> None:
            try:
                step()
            except MCPError as error:
                self._end(self._rounds.failed(error))
            except BaseException as error:  # noqa: BLE001 - a mistake of ours: the future must be done all the same
                logger.error("call_failed", method=self._request.method, error=exception_text(error))
                self._end(InvalidResponse(f"internal error: {exception_text(error)}", delivery="unknown"))

        try:
            (submit or self._trips.steps.submit)(guarded)
        except PoolExhausted:
            # No thread can be started. This one, which ended the step before, is late then; the future is not lost.
            guarded()

    def _keep_and_end(self, keep: Callable[[Outcome], None], result: Outcome) -> None:
        keep(result)
        self._end(None, result)

    def _check(self, result: Outcome) -> None:
        check(self._request, result)
        self._end(None, result)

    def _ask_for_input(self, answer: Outcome) -> None:
        required = self._rounds.required(answer)
        input_requests = InputRequests(
            self._trips.server_requests,
            required.requests or {},
            lambda done: self._next(lambda: self._input_arrived(required, done)),
        )
        self.future.attach(input_requests.cancel)
        input_requests.start()
        self._trips.session.watch(input_requests)

    def _input_arrived(self, required: InputRequired, input_requests: InputRequests) -> None:
        if input_requests.error is not None:
            raise input_requests.error
        params = self._rounds.next_params(required, input_requests.answers)
        self._send(msgspec.structs.replace(self._request, params=params))

    def _end(self, error: MCPError | None, result: Outcome = NOTHING) -> None:
        end(self.future, self._request, error, result)


def check(request: ClientRequest, result: Outcome) -> None:
    """Raise what is wrong with the result, if the call is to fail of it."""
    if request.check is None:
        return
    if not request.check.fails_call:
        request.check.note(result)
    elif (problem := request.check.problem(result)) is not None:
        raise problem
