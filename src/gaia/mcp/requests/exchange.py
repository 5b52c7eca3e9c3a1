"""`RequestExchange`: one request of a client over all its rounds, without I/O. It returns each next step to its driver.

A server of the stateless era may answer with questions instead of a result (2026-07-28, "Multi Round-Trip Requests").
The client answers them and sends the request again. Each round has the whole timeout of the request. The time that
people need for answers between two rounds does not count; it has a limit of its own (`ServerRequests`).

The drivers are `ClientRequests.request` for a thread that blocks, and `SubmittedRequest` for all others.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypedDict

import msgspec
import orjson

from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, NotConnected, UrlElicitationRequired
from gaia.mcp.observation.request_spans import Observation, Observer
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.exchange import META
from gaia.mcp.protocol.gateway_answers import NO_FACTS, ResultFacts
from gaia.mcp.protocol.request_headers import require_own_headers
from gaia.mcp.protocol.rounds import MAX_ROUNDS, InputRequest, InputRequired, delivery_of, needs_input
from gaia.mcp.requests.response_cache import CACHEABLE, ResponseCache
from gaia.mcp.rpc.call import Call, ProgressSink, RequestOwner
from gaia.mcp.rpc.call_origin import CallOrigin, CurrentCall, call_of
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.tools.output_validation import OutputCheck
from gaia.runtime.clock import Clock, require_seconds
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.threads import DaemonPool

Outcome = dict[str, Any]

OnProgress = Callable[[float, float | None, str | None], object]
"""``on_progress(progress, total, message)``; `total` and `message` are None when the server does not give them."""


class CallKeywords(TypedDict, total=False):
    """The keywords of a call, see `CallOptions`."""

    timeout: float | None
    on_progress: OnProgress | None
    reset_timeout_on_progress: bool | None
    max_timeout: float | None
    meta: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    context: Any


class CallOptions(msgspec.Struct, frozen=True):
    """Options of one call, in seconds; None leaves the choice to the client. Raises ValueError for unusable ones."""

    timeout: float | None = None
    """For waiting, writing and the answer together; None means the session's timeout."""
    on_progress: OnProgress | None = None
    reset_timeout_on_progress: bool | None = None
    """Whether each progress report gives the call its whole timeout again, up to `max_timeout`."""
    max_timeout: float | None = None
    meta: Mapping[str, Any] | None = None
    """Further members of the request's `_meta`."""
    headers: Mapping[str, str] | None = None
    """Further headers of this call alone, over HTTP. A repeat of the call has them too; no log and no error shows
    their values."""
    context: Any = None
    """Any object, for the application's functions (`current_call`). It is never sent."""

    # Headers and metadata may be secret.
    __repr__ = object.__repr__

    def __post_init__(self) -> None:
        if self.timeout is not None:
            require_seconds("timeout", self.timeout)
        if self.max_timeout is not None:
            require_seconds("max_timeout", self.max_timeout)
        if self.meta is not None:
            require_own_meta(self.meta)
        if self.headers is not None:
            # The caller may change the given ones before the call is repeated.
            msgspec.structs.force_setattr(self, "headers", require_own_headers(self.headers))

    def changed(self, changes: CallKeywords | None) -> CallOptions:
        """These options with what `before_call` has returned. Headers and metadata are added to those of the call."""
        if not changes:
            return self
        changed: dict[str, Any] = dict(changes)
        if unknown := changed.keys() - CallKeywords.__annotations__.keys():
            raise TypeError(f"before_call: {min(unknown)!r} is not an option of a call")
        for name in ("meta", "headers"):
            if changed.get(name) is not None:
                changed[name] = {**(getattr(self, name) or {}), **changed[name]}
        return CallOptions(**{**msgspec.structs.asdict(self), **changed})


BeforeCall = Callable[[CurrentCall], CallKeywords | Awaitable[CallKeywords | None] | None]
"""Runs before each tool call, in the caller's context. Returns options to change or add; None changes nothing."""

_RESERVED_META = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})


def require_own_meta(meta: Any) -> None:
    """Raises ValueError for metadata that the client itself sets."""
    if not isinstance(meta, Mapping):
        raise ValueError(f"meta: expected a dict, not {type(meta).__name__}")  # noqa: TRY004 - see call_tool
    for name in meta:
        if not isinstance(name, str) or name in _RESERVED_META or name.startswith(META):
            raise ValueError(f"meta: {str(name)[:100]!r} is not free for callers: the protocol or the client sets it")


class RequestSession(Protocol):
    """The part of a session that requests use. Thread-safe."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def timeout(self) -> float:
        """Seconds, for requests without a timeout of their own; infinite if only the transport knows one."""

    @property
    def waits_in_caller(self) -> bool:
        """Whether a submitted call ends in the thread that submits it."""

    def new_call(
        self,
        exchange: RequestExchange,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        """The call for the next round of a request. Raises ValueError for params that are not JSON."""

    def record(self, call: Call) -> None:
        """Count a call that has ended."""

    def is_connected(self) -> bool: ...

    def require_connected(self) -> None:
        """Raises NotConnected if the client was never connected, or was disconnected."""

    def subscriptions_changed(self) -> None:
        """Note that the client now wants other notifications or log messages of the server (`Subscriptions`)."""


class RequestContext:
    """The parts of a client that its requests use. Thread-safe."""

    def __init__(
        self,
        session: RequestSession,
        server_requests: ServerRequests,
        cache: ResponseCache,
        observer: Observer,
        clock: Clock,
        steps: DaemonPool,
    ) -> None:
        """`steps` runs the work between two rounds of submitted requests."""
        self.session = session
        self.server_requests = server_requests
        self.cache = cache
        self.observer = observer
        self.steps = steps
        self.clock = clock
        self.deadlines = deadlines_of(clock)

    def origin_of(
        self, method: str, tool: str | None, arguments: Any, context: Any, observation: Observation | None
    ) -> CallOrigin | None:
        """The code that makes a request now, in this context; None if no function of it could be needed."""
        if not self.server_requests.run_user_code:
            return None
        return CallOrigin.here(call_of(self.observer.server, method, tool, arguments, context, observation))

    @property
    def is_stateless(self) -> bool:
        profile = self.session.profile
        return profile is not None and profile.era.is_stateless

    def note_urls(self, error: UrlElicitationRequired) -> None:
        """Note the URLs in the error: the server may report later that the person has finished there."""
        for elicitation in error.elicitations:
            self.server_requests.note_url(elicitation.get("elicitationId"))


class Step(enum.Enum):
    SEND = "send"
    """Make a `Call` with `params`, and call `answered` when it has ended."""
    ASK = "ask"
    """Have the questions in `required` answered, and call `input_arrived`."""
    CHECK = "check"
    """Call `checked` on a thread where it may take seconds."""
    DONE = "done"
    """Report `error`, or the result in `result` or `raw`; then call `end`."""


SEND, ASK, CHECK, DONE = Step.SEND, Step.ASK, Step.CHECK, Step.DONE
"""Every request reads them; a module name is faster to find than the member of an enumeration."""


class RequestExchange(msgspec.Struct, eq=False):
    """A request and its state, for one thread at a time. Methods return the next step; only a signal handler raises."""

    # A struct, because every call makes one: creating it takes half the time of a Python class.

    method: str
    params: dict[str, Any] | None = None
    options: CallOptions = CallOptions()
    tool: str | None = None
    repeatable: bool = False
    max_timeout: float | None = None
    """Seconds. Progress extends a round up to this (from the options or the client's settings); None: not at all."""
    observation: Observation | None = None
    """Records the request; None if the process records nothing, and after `end`."""
    check: OutputCheck | None = None
    deadline: float | None = None
    """A reading of the clock, from the client of a gateway: each round has at most the time until then."""
    origin: CallOrigin | None = None
    """The application's code that made the request, for its functions that answer the server's questions."""
    owner: RequestOwner | None = None
    """The client of a gateway that made the request. Its result stays undecoded, in `raw`, as the server sent it."""

    # The state of the request. Callers must not set it.

    required: InputRequired | None = None
    result: Outcome | None = None
    raw: bytes = b""
    facts: ResultFacts = NO_FACTS
    error: MCPError | None = None
    is_over: bool = False
    _rounds: int = 0
    _first_params: dict[str, Any] | None = None
    _keep: Callable[[Outcome], None] | None = None
    """Puts the result into the cache; None if the result must not be kept."""

    __repr__ = object.__repr__

    @property
    def questions(self) -> Mapping[str, InputRequest]:
        """The inputs in `required`, by the server's keys; empty if it only wants the request to be sent again."""
        return {} if self.required is None else self.required.requests or {}

    def begin(self, context: RequestContext) -> Step:
        if self.method in CACHEABLE and self.owner is None:
            cached = context.cache.get(self.method, self.params)
            if cached is not None:
                self.result = cached
                return self._done()
            self._keep = context.cache.keeper(self.method, self.params)
        return SEND

    def answered(self, context: RequestContext, call: Call) -> Step:
        if call.error is not None:
            return self.fail(call.error, context)
        check = self.check
        if self.owner is not None:
            self.facts, self.raw = call.facts, call.take_raw()
            if self.facts.result_type == "input_required" and context.is_stateless:
                return self._require_input(self.raw)
            if check is not None and not check.fails_call:
                check.note_bytes(self.raw)
        else:
            self.result = result = call.result
            if "resultType" in result and needs_input(result) and context.is_stateless:
                return self._require_input(result)
            if self._keep is not None and context.is_stateless:
                return CHECK
            if check is not None:
                if check.passes(result):
                    check = None
                elif not check.fails_call:
                    check.note(result)
        if check is not None and check.fails_call:
            return CHECK
        self.is_over = True
        return DONE

    def _require_input(self, result: Outcome | bytes) -> Step:
        self._rounds += 1
        # A result that depends on the application's answers must not be cached.
        self._keep = None
        if self._rounds == 1:
            self._first_params = self.params
        elif self._rounds == MAX_ROUNDS:
            text = f"{self.method}: the server still requires input after {MAX_ROUNDS} rounds"
            return self.fail(InvalidResponse(text))
        try:
            self.required = InputRequired.from_result(orjson.loads(result) if isinstance(result, bytes) else result)
        except InvalidResponse as error:
            return self.fail(error)
        except ValueError as error:
            return self.fail(InvalidResponse(f"what the server requires cannot be decoded: {error}"))
        return ASK

    def input_arrived(self, answers: Mapping[str, Any]) -> Step:
        assert self.required is not None, "it was asked for"
        self.params = self.required.params(self._first_params, answers)
        return SEND

    def checked(self) -> Step:
        """Put the result into the cache, or compare it with the tool's output schema."""
        if self._keep is not None:
            self._keep(self.result or {})
        elif self.check is not None:
            try:
                problem = self.check.problem((self.result or {}) if self.owner is None else orjson.loads(self.raw))
            except ValueError as error:
                problem = InvalidResponse(f"the result cannot be compared with the tool's outputSchema: {error}")
            if problem is not None:
                return self.fail(problem)
        return self._done()

    def fail(self, error: MCPError, context: RequestContext | None = None) -> Step:
        """End the request with `error`, which comes from a round or from between two rounds."""
        if context is not None and isinstance(error, UrlElicitationRequired):
            context.note_urls(error)
        if self._rounds and isinstance(error, NotConnected):
            # The request has begun, so the caller did not misuse the client.
            cause, error = error, CallCancelled(f"{self.method} was under way: {error.message}")
            error.__cause__ = cause
        error.delivery = "unknown" if self._rounds else delivery_of(self.params, error)
        self.error = error
        self.result, self.raw = None, b""
        return self._done()

    def _done(self) -> Step:
        self.is_over, self.required, self._keep = True, None, None
        return DONE

    def end(self, failure: BaseException | None = None) -> None:
        """End the observation, once. `failure` is an exception that is not the request's outcome, such as Ctrl-C."""
        observation, self.observation = self.observation, None
        if observation is None:
            return
        result: Mapping[str, Any] = self.result or {}
        if self.owner is not None:
            result = {"isError": self.facts.is_error}
            if self.error is None and observation.records:
                # The result may be impossible to decode, for example a number too large for a double. Its client
                # handles that.
                with contextlib.suppress(ValueError):
                    result = orjson.loads(self.raw)
        observation.ended(failure or self.error, result)
