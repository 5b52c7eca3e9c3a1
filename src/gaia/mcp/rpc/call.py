"""One request from its submission to its outcome. A call ends exactly once, by the first thread that claims it.

Several threads touch a call: the one that waits for it (and may give up), the one that writes it, the reader that
completes it, the supervisor that fails or moves it. `finish` is the only way to end it, and it claims the call
atomically, so all others find it already ended.

Whether the server may have seen a call is decided without a lock: the writer sets `written` *before* it looks whether
the call has ended, and the thread that ends the call does so *before* it looks at `written`. At least one of the two
sees the other, so a call that is reported as not sent was not sent.

The same holds when a connection is lost: the supervisor withdraws a call and then looks at `written`, so a call that
goes on to the next connection was not written to the lost one, and will not be.
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
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY, NO_FACTS, ResultFacts, facts_of, result_bytes
from gaia.mcp.protocol.messages import Refusal, encode_request
from gaia.mcp.protocol.rounds import check_result_type
from gaia.mcp.rpc.channel import Errand
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import DeadlineHandle, Deadlines
from gaia.runtime.interruption import end_once

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork

ProgressSink = Callable[[Mapping[str, Any]], None]

OnAnswer = Callable[[dict[str, Any] | None, Refusal | None], object]
"""Told the client's result, or why there is none. For any thread."""

_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_FAILURE_KEY = FAILURE_KEY.encode()
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


ReadFailure = Callable[["Call", dict[str, Any]], MCPError | None]
"""The error that a gateway reports in a result; None if the result reports none."""


class CallRoute(Protocol):
    """Where a call is submitted, and given up: the call queue of a supervised server, or a connection alone."""

    def submit(self, call: Call, /) -> bool:
        """Send the call, or let it wait for its server. False if nothing can be sent any more."""

    def expire(self, call: Call, /) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""

    def cancel(self, call: Call, error: CallCancelled, /) -> bool:
        """End a call that its caller no longer wants. False if it ended just before."""


class RequestOwner(Protocol):
    """The client of a gateway, or of a host, for which a call is made. The methods are for any thread, and quick."""

    @property
    def client_key(self) -> Hashable | None:
        """Equal for calls of the same client; None if it is not known whether they are."""

    @property
    def is_away(self) -> bool:
        """Whether the call waits for a client that has not come back for long."""

    def give_way(self) -> None:
        """End the call, whose client is away, for a request of the server that would be another client's then."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client has declared; a server of the stateless era is told of it."""

    @property
    def log_level(self) -> str | None:
        """What a server of the stateless era is asked to log for this call."""

    def logged(self, params: dict[str, Any]) -> None:
        """The server has sent a log message that belongs to the call."""

    def refusal(self, tool: str) -> MCPError | None:
        """Why the client may not call a tool by what the server says of it now, while the call has waited for it."""

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        """Have the client answer a request of the server; returns a function that withdraws it, for any thread."""


class Call(msgspec.Struct, eq=False):
    """A request that waits for its answer.

    `params` may have members that are JSON already (`orjson.Fragment`). Raises ValueError when `params` cannot be
    expressed in JSON. `on_done` and `on_progress` run on the thread that completes or hears of it, usually a reader:
    they must be ours, quick and unable to raise. `on_done` is called again after an interruption, unless it has taken
    itself away from the call.
    """

    # A struct, because every call makes one: it is filled in half the time that a class of Python takes.

    id: int
    method: str
    params: dict[str, Any] | None
    now: float
    """When it was made; a reading of the clock."""
    timeout: float
    """Seconds from `now` on, for everything: queueing, writing, waiting. Infinite for requests that are answered only
    when something ends."""
    repeatable: bool = False
    """Whether writing the request twice does no harm."""
    bound: bool = False
    """Whether it only makes sense on the connection it is submitted to."""
    negotiated: NegotiatedProtocol = NOT_NEGOTIATED
    on_done: Callable[[Call], None] | None = None
    on_progress: ProgressSink | None = None
    observer: Observation | None = None
    max_timeout: float | None = None
    """Seconds: each progress gives the call its whole `timeout` again, up to that much in all. None: it does not."""
    tool: str | None = None
    """The server's own name of the tool that is called."""
    route: CallRoute | None = None
    """Where `perform` and `start` submit it."""
    owner: RequestOwner | None = None
    """The client of a gateway for which it is made. Its result is not decoded then: it is in `raw`."""
    loop: LoopWork | None = None
    """The event loop whose task waits for its end; None: a thread does."""

    # Below is what becomes of it; no argument.

    frame: bytes = b""
    deadline: float = 0.0
    """A reading of the clock; progress may set it back."""
    written: bool = False
    withdrawn: bool = False
    repeated: bool = False
    result: dict[str, Any] = {}
    raw: bytes = b""
    """The result as JSON, once a call with an owner has ended without an error."""
    facts: ResultFacts = NO_FACTS
    """What the result in `raw` says of itself."""
    error: MCPError | None = None
    watched: DeadlineHandle | None = None
    _caller: int | None = None
    """The thread that carries out an errand of this call, while it looks for one."""
    _errand: Errand | None = None
    """Only the caller's thread changes it."""
    _outcome: dict[None, tuple[Any, ...]] = {}
    """What the call has ended with, see `end_once`."""
    _done: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.deadline = self.now + self.timeout
        self._done.acquire()
        self.frame = self._encode()

    # Its members are what the caller sends to the server, which is not for logs.
    __repr__ = object.__repr__

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have acted on the call."""
        return "unknown" if self.written or self.repeated else "not_sent"

    @property
    def is_standing(self) -> bool:
        """Whether it is meant to stay unanswered: it has no deadline, and says nothing about how busy the server is."""
        return self.deadline == math.inf

    @property
    def ended(self) -> bool:
        return bool(self._outcome)

    def begin_write(self) -> bool:
        """The writer asks right before the first byte; False if the call has ended or was withdrawn."""
        self.written = True
        if self._outcome or self.withdrawn:
            self.written = False
            return False
        return True

    def undo_write(self) -> None:
        """The writer found out that not one byte of the frame left."""
        self.written = False

    def finish(self, result: dict[str, Any] | None = None, error: MCPError | None = None) -> bool:
        """End the call. False if it had already ended; then nothing changes. Sets what `error` says of delivery."""
        return end_once(self._outcome, (result, error), self._conclude)

    def finish_raw(self, result: bytes, *, is_stateless: bool, read_failure: ReadFailure | None) -> None:
        """End a call that has an owner with the result as the server of a stateless or other era has sent it.

        `read_failure` is None unless the server is a gateway. For the thread that has taken the call out of its
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
        """The result, once. What still knows the call keeps no part of its text."""
        result, self.raw, self.frame = self.raw, b"", b""
        return result

    def _conclude(self, result: dict[str, Any] | None, error: MCPError | None) -> None:
        """The rest, in the thread that has claimed the call. Repeated after an interruption."""
        if error is not None:
            # Only now: whether it was written may be asked once the claim is made, see above.
            error.delivery = self.delivery
            self.error = error
        elif result is not None:
            if self.owner is None:
                self.result = result
            else:
                # It has been decoded because its line had to be repaired.
                self.raw = result_bytes(result)
                self.facts = facts_of(self.raw)
        if self._done.locked():
            self._done.release()
        # The caller's thread may put it away in this moment.
        if (errand := self._errand) is not None:
            errand.ended()
        if self.on_done is not None:
            self.on_done(self)
            self.on_done = None
        if self.watched is not None:
            self.watched.release()

    def progressed(self, now: float) -> None:
        """The server works on it: its time begins anew, if it was made so ("Timeouts": there is a maximum)."""
        if self.max_timeout is not None:
            # A thread that waits until the old deadline looks at the new one then. While a person is asked, the call
            # has more time than that.
            deadline = min(now + self.timeout, self.now + max(self.max_timeout, self.timeout))
            self.deadline = max(self.deadline, deadline)

    def start(self, deadlines: Deadlines) -> None:
        """Submit the call, and return at once. `deadlines` ends it if it is late."""
        route = self.route
        assert route is not None, "it is to be submitted"
        try:
            route.submit(self)
            if not self._outcome:
                deadlines.watch(self)
        except BaseException:
            # Of a signal handler.
            route.cancel(self, CallCancelled("the caller was interrupted"))
            raise

    def cancel(self, error: CallCancelled) -> bool:
        """End the call, which its caller does not want any more, and tell the server. False if it ended just before."""
        assert self.route is not None, "it was submitted, or is about to be"
        return self.route.cancel(self, error)

    def expire(self) -> bool:
        """End the call, whose deadline has passed. False if it ended just before."""
        assert self.route is not None, "it was submitted"
        return self.route.expire(self)

    def perform(self, clock: Clock, report: Callable[[], object] | None = None) -> None:
        """Submit the call, and block until it has ended: at its deadline at the latest, where its route expires it.

        `report` runs in between, in this thread, and returns when the call has ended or its deadline has passed. An
        exception in this thread, such as Ctrl-C, cancels the call: the server must not go on with it.
        """
        route = self.route
        assert route is not None, "it is to be submitted"
        try:
            if report is None:
                self._caller = threading.get_ident()
            if not route.submit(self):
                self.finish(error=ServerCrashed("the server has ended"))
            if self._errand is not None:
                self._run_errands()
            self._caller = None
            if report is not None:
                report()
            if not self.wait(clock) and not route.expire(self):
                self.wait_for_outcome()
        except BaseException:
            self._caller = None
            try:
                route.cancel(self, CallCancelled("the caller was interrupted"))
            finally:
                # Another exception may come.
                if self._errand is not None:
                    self._errand.abandon()
                    self._errand = None
            raise

    def leave(self, errand: Errand) -> bool:
        """Leave `errand` to the caller's thread, if this is that thread and it goes on to look for one."""
        if self._caller != threading.get_ident():
            return False
        self._errand = errand
        return True

    def _run_errands(self) -> None:
        """Run the errand that was left, and those that come of it.

        One that loses the answer may submit the call again, which leaves another one.
        """
        while (errand := self._errand) is not None:
            errand.run()
            if self._errand is errand:
                self._errand = None

    def wait(self, clock: Clock) -> bool:
        """Block until the call has ended, at most until its deadline. False if it has not ended by then."""
        while not clock.acquire(self._done, deadline := self.deadline):
            if self.deadline <= deadline:
                return False
        return True

    def wait_for_outcome(self) -> None:
        """Block until a call that another thread has already claimed is released: a matter of microseconds."""
        self._done.acquire()

    def timed_out(self) -> CallTimeout:
        """The error for a call whose deadline has passed."""
        return CallTimeout(f"{self.method} was not answered within {self.seconds:g} s")

    @property
    def seconds(self) -> float:
        """The timeout, for people."""
        # What an exchange has left of its time is some microseconds less than a round figure.
        return round(self.timeout, 2) or self.timeout

    def withdraw(self) -> bool:
        """Take the call away from a lost connection. True if that has not written it, and now never will."""
        self.withdrawn = True
        return not self.written

    def readmit(self) -> None:
        """Allow writing again, once nothing is written any more to the connection from which the call was withdrawn."""
        self.withdrawn = False

    def add_meta(self, negotiated: NegotiatedProtocol) -> None:
        """Encode the request anew for a connection with another negotiated protocol; for the thread that submits it."""
        self.negotiated = negotiated
        self.frame = self._encode()

    def prepare_repeat(self, identifier: int) -> None:
        """Give the call a new id to be written once more; for the supervisor, while no connection has it."""
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
    """What a server is told with a request is what the client can do, not what the gateway can."""
    capabilities = {name: {} if name == "roots" else details for name, details in owner.capabilities.items()}
    meta = {**negotiated.request_meta, _CAPABILITIES: capabilities}
    if owner.log_level is not None:
        meta[_LOG_LEVEL] = owner.log_level
    return msgspec.structs.replace(negotiated, request_meta=meta)
