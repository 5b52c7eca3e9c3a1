"""`RequestExchange`: one request of a client over all its rounds, without I/O. Drivers do what it says next.

A server of the stateless era may answer with questions instead of a result (2026-07-28, "Multi Round-Trip Requests").
The client answers them and sends the request again. The deadline of a request is that of each round: how long people
think between two rounds does not count, they have their own time (`ServerRequests`).

The drivers are `ClientRequests.request` for a thread that blocks, and `SubmittedRequest` for everything else.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, NotConnected, UrlElicitationRequired
from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.gateway_answers import NO_FACTS, ResultFacts
from gaia.mcp.protocol.rounds import MAX_ROUNDS, InputRequired, delivery_of, needs_input
from gaia.mcp.requests.response_cache import CACHEABLE, ResponseCache
from gaia.mcp.rpc.call import Call, RequestOwner
from gaia.runtime.clock import require_seconds

Outcome = dict[str, Any]

OnProgress = Callable[[float, float | None, str | None], object]
"""``on_progress(progress, total, message)``; `total` and `message` are None when the server does not give them."""


class CallOptions(msgspec.Struct, frozen=True):
    """How a caller wants a call to be made. Durations in seconds; None leaves it to the client.

    Raises ValueError for a duration that is none (`require_seconds`).
    """

    timeout: float | None = None
    """For waiting, writing and the answer together; None is the session's own."""
    on_progress: OnProgress | None = None
    reset_timeout_on_progress: bool | None = None
    """Whether each progress gives the call its whole timeout again, up to `max_timeout`."""
    max_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            require_seconds("timeout", self.timeout)
        if self.max_timeout is not None:
            require_seconds("max_timeout", self.max_timeout)


class ResultCheck(Protocol):
    """Whether a result is what the server has promised."""

    @property
    def fails_call(self) -> bool:
        """Whether the call fails if the result is not. Otherwise that is only logged."""

    def problem(self, result: Mapping[str, Any], /) -> MCPError | None:
        """What the call fails with. May take seconds."""

    def submit(self, task: Callable[[], object], /) -> None:
        """Run a task, such as `problem`, where nothing else of the client waits for it. Raises `PoolExhausted`."""

    def note(self, result: Mapping[str, Any], /) -> None:
        """Have the log told soon what is wrong with the result. Never blocks."""

    def note_bytes(self, result: bytes, /) -> None:
        """The same for a result that is still JSON."""


class Peer(Protocol):
    """What an exchange needs to know of its client and the server."""

    @property
    def cache(self) -> ResponseCache: ...

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks the stateless era, as far as it is known."""

    def note_urls(self, error: UrlElicitationRequired, /) -> None:
        """The error sends a person to URLs; the server may report that the person is done there."""


class Step(enum.Enum):
    """What a driver does next."""

    SEND = "send"
    """Make a `Call` of `params`, and tell `answered` when it has ended."""
    ASK = "ask"
    """Have the questions in `required` answered, and tell `input_arrived`."""
    CHECK = "check"
    """Call `checked`, which may take seconds, where that delays nobody."""
    DONE = "done"
    """Report `error`, or the result in `result` or `raw`, and call `end`."""


SEND, ASK, CHECK, DONE = Step.SEND, Step.ASK, Step.CHECK, Step.DONE
"""Every request needs them, and the members of an enumeration take longer to find."""


class RequestExchange(msgspec.Struct, eq=False):
    """A request, and what becomes of it. For one thread at a time.

    The methods return what to do next. They raise nothing but what a signal handler raises.
    """

    # A struct, because every call makes one: it is filled in half the time that a class of Python takes.

    method: str
    params: dict[str, Any] | None = None
    """Of the next round."""
    options: CallOptions = CallOptions()
    tool: str | None = None
    """The server's own name of the tool, if this is a tool call."""
    repeatable: bool = False
    """Whether writing it twice does no harm."""
    max_timeout: float | None = None
    """Seconds up to which progress extends a round, after the options and the client's settings; None: it does not."""
    observation: Observation | None = None
    """Told what becomes of the request; None if the process records nothing, and after `end`."""
    check: ResultCheck | None = None
    """The check of its result, if there is something to check."""
    owner: RequestOwner | None = None
    """The client of a gateway that made the request. The result stays the bytes that the server sent, in `raw`."""

    # Below is what becomes of it; no argument.

    required: InputRequired | None = None
    """What the server requires before the next round."""
    result: Outcome | None = None
    raw: bytes = b""
    facts: ResultFacts = NO_FACTS
    """What the result in `raw` says of itself."""
    error: MCPError | None = None
    is_over: bool = False
    _rounds: int = 0
    """How often the server has required input."""
    _first_params: dict[str, Any] | None = None
    """Those of the first round, once there is another one."""
    _keep: Callable[[Outcome], None] | None = None
    """Puts the result into the cache."""

    __repr__ = object.__repr__

    def begin(self, peer: Peer) -> Step:
        if self.method in CACHEABLE and self.owner is None:
            cached = peer.cache.get(self.method, self.params)
            if cached is not None:
                self.result = cached
                return self._done()
            self._keep = peer.cache.keeper(self.method, self.params)
        return SEND

    def answered(self, peer: Peer, call: Call) -> Step:
        """The call of this round has ended."""
        if call.error is not None:
            return self.fail(call.error, peer)
        check = self.check
        if self.owner is not None:
            self.facts, self.raw = call.facts, call.take_raw()
            if self.facts.result_type == "input_required" and peer.is_stateless:
                return self._require_input(self.raw)
            if check is not None and not check.fails_call:
                check.note_bytes(self.raw)
        else:
            self.result = result = call.result
            if "resultType" in result and needs_input(result) and peer.is_stateless:
                return self._require_input(result)
            if self._keep is not None and peer.is_stateless:
                return CHECK
            if check is not None and not check.fails_call:
                check.note(result)
        if check is not None and check.fails_call:
            return CHECK
        self.is_over = True
        return DONE

    def _require_input(self, result: Outcome | bytes) -> Step:
        self._rounds += 1
        # A result that answers of the application went into must not be used again.
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
        """All that the server required is there."""
        assert self.required is not None, "it was asked for"
        self.params = self.required.params(self._first_params, answers)
        return SEND

    def checked(self) -> Step:
        """Compare the result with what the tool has promised, or put it into the cache."""
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

    def fail(self, error: MCPError, peer: Peer | None = None) -> Step:
        """The request fails: with the error of a round, or of what is between two."""
        if peer is not None and isinstance(error, UrlElicitationRequired):
            peer.note_urls(error)
        if self._rounds and isinstance(error, NotConnected):
            # The request has begun, so it is no misuse of the client.
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
        """End the observation, once. `failure` is an exception that is no outcome of the request, such as Ctrl-C."""
        observation, self.observation = self.observation, None
        if observation is None:
            return
        result: Mapping[str, Any] = self.result or {}
        if self.owner is not None:
            result = {"isError": self.facts.is_error}
            if self.error is None and observation.records:
                # What cannot be decoded, such as a number that no double is as large as, is the client's affair.
                with contextlib.suppress(ValueError):
                    result = orjson.loads(self.raw)
        observation.ended(failure or self.error, result)
