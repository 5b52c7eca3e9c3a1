"""One request on the wire, from its submission to its outcome. The first thread that claims a call ends it, once.

Several threads use a call: the caller's thread waits for it and may give up, a writer writes it, a reader completes it,
the supervisor fails it or moves it. Only `finish` ends a call. It claims the call atomically, so all other threads find
it ended.

No lock is needed to decide whether the server may have seen a call. The writer sets `written`, then looks whether the
call has ended; the thread that ends the call claims it, then looks at `written`. At least one of the two sees the
other, so a call that is reported as not sent was not sent.

The same holds when a connection is lost. The supervisor withdraws a call, then looks at `written`. So the lost
connection has not written, and will not write, a call that goes on to the next connection.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import orjson

from gaia.mcp.errors import CallCancelled, CallTimeout, Delivery, MCPError, ServerCrashed
from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.eras import stateless_capabilities
from gaia.mcp.protocol.exchange import META, NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY, NO_FACTS, ResultFacts, facts_of, result_bytes
from gaia.mcp.protocol.messages import Refusal, encode_request
from gaia.mcp.protocol.rounds import check_result_type
from gaia.mcp.rpc.call_origin import CallOrigin
from gaia.mcp.rpc.channel import CallerWork
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import DeadlineHandle, Deadlines
from gaia.runtime.locks import end_once, reentrant_lock

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork

ProgressSink = Callable[[Mapping[str, Any]], None]

OnAnswer = Callable[[dict[str, Any] | None, Refusal | None], object]
"""Gets the client's result, or the reason why there is none. For any thread."""

_FAILURE_KEY = FAILURE_KEY.encode()

ReadFailure = Callable[["Call", dict[str, Any]], MCPError | None]
"""The error that a gateway reports in a result; None if the result reports none."""


class CallRoute(Protocol):
    """Where a call is submitted and given up: the call queue of a supervised server, or a single connection."""

    def submit(self, call: Call, /) -> bool:
        """Send the call, or let it wait for its server. False if no call can be sent any more."""

    def expire(self, call: Call, /) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""

    def cancel(self, call: Call, error: CallCancelled, /) -> bool:
        """End a call that its caller no longer wants. False if it ended just before."""


class RequestOwner(Protocol):
    """The client of a gateway, or of a host, for which a call is made. Methods are for any thread, and quick."""

    @property
    def client_key(self) -> Hashable | None:
        """Equal for calls of the same client; None if the client is unknown."""

    @property
    def is_away(self) -> bool:
        """Whether the client has been disconnected for long."""

    def give_way(self) -> None:
        """End the call, whose client is away, so that a question of the server cannot reach the wrong client."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client has declared, for a server of the stateless era."""

    @property
    def log_level(self) -> str | None:
        """The log level for this call, for a server of the stateless era."""

    def logged(self, params: dict[str, Any]) -> None:
        """Pass on a log message of the server that belongs to the call."""

    def refusal(self, tool: str) -> MCPError | None:
        """The error if the client may no longer call `tool`: its rights may change while the call waits."""

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        """Ask the client to answer a request of the server. Returns a function that withdraws it, for any thread."""


class _Standstill(msgspec.Struct):
    """The clock of one call, which stands still while questions of the server are open. `_standing` guards it."""

    left: float
    """Seconds for which the clock may still stand."""
    since: float = 0.0
    """A reading of the clock: when the first of the open questions came."""
    due: float = 0.0
    """The deadline, as if no question were open."""
    questions: int = 0


_standing = reentrant_lock()


class Call(msgspec.Struct, eq=False):
    """A request that waits for its answer.

    `params` may have members that are JSON already (`orjson.Fragment`). Raises ValueError if `params` cannot be
    expressed in JSON. `on_done` and `on_progress` run on the thread that completes the call or reads its progress,
    usually a reader: they must be internal code, quick, and must not raise. After an interruption `on_done` is called
    again, unless it has set itself to None.
    """

    # A struct, because every call makes one: creating it takes half the time of a Python class.

    id: int
    method: str
    params: dict[str, Any] | None
    now: float
    """When the call was made; a reading of the clock. Later by the time for which the call's clock stood still."""
    timeout: float
    """Seconds from `now` on, for queueing, writing and waiting together. Infinite for a standing call."""
    repeatable: bool = False
    """Whether it is harmless if the server gets the request twice."""
    bound: bool = False
    """Whether the supervisor makes the call: it only makes sense on the connection to which it is submitted."""
    pinned: bool = False
    """Whether the application wants it on the connection to which it is submitted, and on no other."""
    negotiated: NegotiatedProtocol = NOT_NEGOTIATED
    on_done: Callable[[Call], None] | None = None
    on_progress: ProgressSink | None = None
    observer: Observation | None = None
    max_timeout: float | None = None
    """Seconds. Each progress gives the call its whole `timeout` again, up to this much in all; None: it does not."""
    tool: str | None = None
    route: CallRoute | None = None
    owner: RequestOwner | None = None
    """The client of a gateway for which the call is made. The result stays undecoded, in `raw`."""
    loop: LoopWork | None = None
    """The event loop whose task waits for the end; None: a thread waits."""
    headers: Mapping[str, str] | None = None
    """Headers for this call alone, over HTTP. They may be secret."""
    origin: CallOrigin | None = None
    """The code that made the call, for the application's functions that answer the server's questions."""

    # The state of the call. Callers must not set it.

    frame: bytes = b""
    deadline: float = 0.0
    written: bool = False
    withdrawn: bool = False
    repeated: bool = False
    result: dict[str, Any] = {}
    raw: bytes = b""
    """The result as JSON, once a call with an owner has ended without an error."""
    facts: ResultFacts = NO_FACTS
    error: MCPError | None = None
    watched: DeadlineHandle | None = None
    _standstill: _Standstill | None = None
    """None until the server asks a question that may belong to this call."""
    _caller: int | None = None
    """The caller's thread, while it is ready to do the I/O of this call."""
    _work: CallerWork | None = None
    """Only the caller's thread changes it."""
    _outcome: dict[None, tuple[Any, ...]] = {}
    _done: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.deadline = self.now + self.timeout
        self._done.acquire()
        self.frame = self._encode()

    # The members contain the caller's data, which must not get into logs.
    __repr__ = object.__repr__

    @property
    def delivery(self) -> Delivery:
        return "unknown" if self.written or self.repeated else "not_sent"

    @property
    def is_standing(self) -> bool:
        """Whether the call is meant to stay unanswered: it has no deadline, and does not make the server busy."""
        return self.deadline == math.inf

    @property
    def last_deadline(self) -> float:
        return self._last(self.deadline)

    def _last(self, deadline: float) -> float:
        if self.max_timeout is None:
            return deadline
        return max(deadline, self.now + max(self.max_timeout, self.timeout))

    @property
    def ended(self) -> bool:
        return bool(self._outcome)

    def begin_write(self) -> bool:
        """The writer calls this right before the first byte. False if the call has ended or was withdrawn."""
        self.written = True
        if self._outcome or self.withdrawn:
            self.written = False
            return False
        return True

    def undo_write(self) -> None:
        self.written = False

    def finish(self, result: dict[str, Any] | None = None, error: MCPError | None = None) -> bool:
        """End the call and set `error.delivery`. False if the call had already ended; then nothing changes."""
        return end_once(self._outcome, (result, error), self._conclude)

    def finish_raw(self, result: bytes, *, is_stateless: bool, read_failure: ReadFailure | None) -> None:
        """End a call that has an owner with its undecoded result. `is_stateless` is the era of the server.

        `read_failure` is None unless the server is a gateway. Only for the thread that has taken the call out of its
        connection's table.
        """
        self.raw = result
        self.facts = facts = facts_of(result)
        failure: MCPError | None = None
        if is_stateless and facts is not NO_FACTS:
            failure = check_result_type(self.method, {"resultType": facts.result_type})
        if failure is None and read_failure is not None and facts.is_error is True and _FAILURE_KEY in result:
            with contextlib.suppress(ValueError):
                failure = read_failure(self, orjson.loads(result))
        self.finish(error=failure)

    def take_raw(self) -> bytes:
        """The result, once. Afterwards the call keeps neither its result nor its frame."""
        result, self.raw, self.frame = self.raw, b"", b""
        return result

    def _conclude(self, result: dict[str, Any] | None, error: MCPError | None) -> None:
        if error is not None:
            # Not earlier: `written` must be read after the claim, see the module's docstring.
            error.delivery = self.delivery
            self.error = error
        elif result is not None:
            if self.owner is None:
                self.result = result
            else:
                # The line had to be repaired, so the result has been decoded.
                self.raw = result_bytes(result)
                self.facts = facts_of(self.raw)
        if self._done.locked():
            self._done.release()
        # The caller's thread may set `_work` to None at this moment.
        if (work := self._work) is not None:
            work.ended()
        if self.on_done is not None:
            self.on_done(self)
            self.on_done = None
        if self.watched is not None:
            self.watched.release()

    def progressed(self, now: float) -> None:
        """Note progress. It gives a call with `max_timeout` its timeout again, up to that maximum ("Timeouts")."""
        if self.max_timeout is None:
            return
        if self._standstill is None:
            # A thread that waits until the old deadline looks at the new one afterwards.
            self.deadline = max(self.deadline, min(now + self.timeout, self.last_deadline))
            return
        with _standing:
            still = self._standstill
            if still.questions:
                still.due = max(still.due, min(still.since + self.timeout, self._last(still.due)))
                self.deadline = still.due + still.left
            else:
                self.deadline = max(self.deadline, min(now + self.timeout, self.last_deadline))

    def stand_still(self, now: float, seconds: float) -> None:
        """Stop the call's clock while a question of the server is open: people take longer than servers.

        In all, the clock stands still for `seconds` at most. The caller must call `go_on` after the question's end.
        """
        with _standing:
            still = self._standstill = self._standstill or _Standstill(seconds)
            still.questions += 1
            if still.questions == 1:
                still.since, still.due = now, self.deadline
                self.deadline += still.left

    def go_on(self, now: float) -> None:
        """Let the clock run again, unless other questions are open. The caller then watches the new deadline."""
        with _standing:
            still = self._standstill
            assert still is not None, "it stood still"
            still.questions -= 1
            if not still.questions:
                stood = min(now - still.since, still.left)
                still.left -= stood
                self.now += stood
                self.deadline = still.due + stood

    def start(self, deadlines: Deadlines) -> None:
        """Submit the call and return at once. `deadlines` ends the call if it is late."""
        route = self.route
        assert route is not None, "it is to be submitted"
        try:
            route.submit(self)
            if not self._outcome:
                deadlines.watch(self)
        except BaseException:
            # A signal handler has raised it.
            route.cancel(self, CallCancelled("the caller was interrupted"))
            raise

    def cancel(self, error: CallCancelled) -> bool:
        assert self.route is not None, "it was submitted, or is about to be"
        return self.route.cancel(self, error)

    def expire(self) -> bool:
        assert self.route is not None, "it was submitted"
        return self.route.expire(self)

    def perform(self, clock: Clock, report: Callable[[], object] | None = None) -> None:
        """Submit the call and block until it has ended. At its deadline the route expires it.

        `report` runs in this thread after the submission; it returns when the call has ended or its deadline has
        passed. An exception in this thread, such as Ctrl-C, cancels the call, so that the server stops its work.
        """
        route = self.route
        assert route is not None, "it is to be submitted"
        try:
            if report is None:
                self._caller = threading.get_ident()
            if not route.submit(self):
                self.finish(error=ServerCrashed("the server has ended"))
            # If the work loses the answer, the call may be submitted again, which sets other work.
            while (work := self._work) is not None:
                work.run()
                if self._work is work:
                    self._work = None
            self._caller = None
            if report is not None:
                report()
            if not self.wait(clock) and not route.expire(self):
                # Another thread has claimed the call, and releases it within microseconds.
                self._done.acquire()
        except BaseException:
            self._caller = None
            try:
                route.cancel(self, CallCancelled("the caller was interrupted"))
            finally:
                # `cancel` may raise another exception.
                if self._work is not None:
                    self._work.abandon()
                    self._work = None
            raise

    def run_in_caller(self, work: CallerWork) -> bool:
        """Have the caller's thread run `work`, if this is that thread and it is about to wait."""
        if self._caller != threading.get_ident():
            return False
        self._work = work
        return True

    def wait(self, clock: Clock) -> bool:
        """Block until the call has ended, at most until its deadline. False if the deadline passed first."""
        while not clock.acquire(self._done, deadline := self.deadline):
            if self.deadline <= deadline:
                return False
        return True

    def timed_out(self) -> CallTimeout:
        return CallTimeout(f"{self.method} was not answered within {self.seconds:g} s")

    @property
    def seconds(self) -> float:
        # The time that an exchange has left is some microseconds less than a round figure.
        return round(self.timeout, 2) or self.timeout

    def withdraw(self) -> bool:
        """Take the call away from a lost connection. True if the connection has not written it and never will."""
        self.withdrawn = True
        return not self.written

    def readmit(self) -> None:
        """Allow writing again, once the connection from which the call was withdrawn can write nothing any more."""
        self.withdrawn = False

    def add_meta(self, negotiated: NegotiatedProtocol) -> None:
        """Encode the request again, for another negotiated protocol. Only for the thread that submits the call."""
        self.negotiated = negotiated
        self.frame = self._encode()

    def prepare_repeat(self, identifier: int) -> None:
        """Give the call a new id to send it once more. Only for the supervisor, while no connection has the call."""
        self.id = identifier
        self.repeatable = False
        self.repeated = True
        self.written = False
        self.frame = self._encode()

    def _encode(self) -> bytes:
        # The id is unique among all calls, so it serves as the progress token (specification, "Progress").
        token = None if self.on_progress is None and self.max_timeout is None else self.id
        negotiated, params = self.negotiated, self.params
        if negotiated.request_meta or token is not None:
            if self.owner is not None and negotiated.request_meta:
                negotiated = _for_client(negotiated, self.owner)
            params = negotiated.add_meta(params, token)
        return encode_request(self.id, self.method, params)


def _for_client(negotiated: NegotiatedProtocol, owner: RequestOwner) -> NegotiatedProtocol:
    meta = {**negotiated.request_meta, f"{META}clientCapabilities": stateless_capabilities(owner.capabilities)}
    negotiated = msgspec.structs.replace(negotiated, request_meta=meta)
    return negotiated if owner.log_level is None else negotiated.with_log_level(owner.log_level)
