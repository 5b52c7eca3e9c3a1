"""One request from its submission to its outcome. A call ends exactly once, whoever gets there first.

Who touches a call: the thread that waits for it (and may give up), the thread that writes it, the reader that completes
it, the supervisor that fails or moves it. `finish` is the only way to end it, and it claims the call atomically, so all
others find it already ended.

Whether the server may have seen a call is decided without a lock: the writer sets `written` *before* it looks whether
the call has ended, and whoever ends the call does so *before* it looks at `written`. At least one of the two sees the
other, so a call that is reported as not sent was not sent.

The same holds when a connection is lost: the supervisor withdraws a call and then looks at `written`, so a call that
goes on to the next connection was not written to the lost one, and will not be.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from opentelemetry.context import Context

from gaia.mcp.client.protocol.messages import encode_request
from gaia.mcp.client.protocol.negotiated_protocol import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.errors import Delivery, MCPError

__all__ = ["Call", "CallObserver", "ProgressSink"]

ProgressSink = Callable[[Mapping[str, Any]], None]


class CallObserver(Protocol):
    """Told what becomes of a call on its way, by whichever thread does it: quick, and never raising."""

    @property
    def context(self) -> Context | None:
        """Where what belongs to the call is recorded; None if it is not followed."""

    def numbered(self, call_id: int) -> None:
        """It has got its id."""

    def queued(self) -> None:
        """It waits for its server to be ready."""

    def resumed(self) -> None:
        """Its server is ready again."""

    def requeued(self, reason: str) -> None:
        """Its connection was lost before it was written; it waits for the next one."""

    def repeated(self, call_id: int, reason: str) -> None:
        """Its connection was lost; it waits for the next one, and will be written once more under this id."""


class Call:
    """A request that waits for its answer.

    `timeout` is in seconds and covers everything from `now`, a reading of the clock, on: queueing, writing, waiting.
    An infinite one is for requests that are answered only when something ends.
    `repeatable` says that writing the request twice does no harm; `bound` that it only makes sense on the connection
    it is submitted to. `on_done` and `on_progress` run on the thread that completes or hears of it, usually a reader:
    they must be ours, quick and unable to raise.
    """

    __slots__ = (
        "_claim",
        "_done",
        "bound",
        "deadline",
        "error",
        "frame",
        "id",
        "longest",
        "method",
        "negotiated",
        "observer",
        "on_done",
        "on_progress",
        "params",
        "repeatable",
        "repeated",
        "result",
        "timeout",
        "withdrawn",
        "written",
    )

    def __init__(
        self,
        identifier: int,
        method: str,
        params: dict[str, Any] | None,
        now: float,
        timeout: float,
        *,
        repeatable: bool = False,
        bound: bool = False,
        negotiated: NegotiatedProtocol = NOT_NEGOTIATED,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
        observer: CallObserver | None = None,
        longest: float | None = None,
    ) -> None:
        """Raises ValueError when `params` cannot be expressed in JSON."""
        self.id = identifier
        self.method = method
        self.params = params
        self.timeout = timeout
        self.deadline = now + timeout
        self.longest = None if longest is None else now + max(longest, timeout)
        """A reading of the clock, up to which progress sets the deadline back; None if it does not."""
        self.repeatable = repeatable
        self.bound = bound
        self.negotiated = negotiated
        self.on_done = on_done
        self.on_progress = on_progress
        self.observer = observer
        self.written = False
        self.withdrawn = False
        self.repeated = False
        self.result: dict[str, Any] = {}
        self.error: MCPError | None = None
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self.frame = self._encode()

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
        return self._claim.locked()

    def begin_write(self) -> bool:
        """The writer asks right before the first byte; False if nobody waits for the call here any more."""
        self.written = True
        if self._claim.locked() or self.withdrawn:
            self.written = False
            return False
        return True

    def undo_write(self) -> None:
        """The writer found out that not one byte of the frame left."""
        self.written = False

    def finish(self, result: dict[str, Any] | None = None, error: MCPError | None = None) -> bool:
        """End the call. False if it had already ended; then nothing changes. Sets what `error` says of delivery."""
        if not self._claim.acquire(False):
            return False
        if error is not None:
            # Only now: whether it was written may be asked once the claim is made, see above.
            error.delivery = self.delivery
            self.error = error
        elif result is not None:
            self.result = result
        self._done.release()
        if self.on_done is not None:
            self.on_done(self)
        return True

    def progressed(self, now: float) -> None:
        """The server works on it: its time begins anew, if it was made so ("Timeouts": there is a maximum)."""
        if self.longest is not None:
            # Who waits until the old deadline looks at the new one then.
            self.deadline = min(now + self.timeout, self.longest)

    def wait(self, clock: Clock) -> bool:
        """Block until the call has ended, at most until its deadline. False if it has not ended by then."""
        while not clock.acquire(self._done, deadline := self.deadline):
            if self.deadline <= deadline:
                return False
        return True

    def wait_for_outcome(self) -> None:
        """Block until a call that somebody has already claimed is released, which is a matter of microseconds."""
        self._done.acquire()

    def withdraw(self) -> bool:
        """Take the call away from a lost connection. True if that has not written it, and now never will."""
        self.withdrawn = True
        return not self.written

    def readmit(self) -> None:
        """Allow writing again, once the connection from which the call was withdrawn has been closed completely."""
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
        token = None if self.on_progress is None and self.longest is None else self.id
        negotiated, params = self.negotiated, self.params
        if negotiated.request_meta or token is not None:
            params = negotiated.add_meta(params, token)
        return encode_request(self.id, self.method, params)
