"""The driver's calls to one host: on their way, or waiting until there is a host that can take them."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.flight import Flight
from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.link import HostLink, HostLost
from gaia.mcp.cluster.wire import Reply, decode_reply, encode
from gaia.mcp.errors import (
    CallCancelled,
    InvalidResponse,
    MCPError,
    NotConnected,
    Overloaded,
    ServerCrashed,
    ServerUnavailable,
    SessionLost,
    ToolDenied,
)
from gaia.mcp.rpc.call import Call, RequestOwner
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.call_queue import error_of_waited, timeout_of_waiting
from gaia.mcp.supervision.context import SupervisionHooks
from gaia.mcp.supervision.events import ServerState
from gaia.runtime.locks import completed, reentrant_lock
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_AGAIN_SECONDS = 0.01
"""Until a call is sent again that came back because the program is behind with the tools."""


class PlacedCalls:
    """State, backlog and flights of a placed server, which may have several hosts. Thread-safe.

    A call goes to the host with the fewest under way.

    A call is written, in the sense of its `delivery`, once it was given to the engine: from then on only the host can
    say that the server has not seen it.
    """

    ready: Connection | None = None
    """As of a call queue: the connection is the host's."""

    def __init__(
        self,
        server: str,
        max_pending: int,
        max_flights: int,
        loop: ClusterLoop,
        hooks: SupervisionHooks,
        on_lost: Callable[[str, BaseException], object],
    ) -> None:
        """`hooks` are asked about each tool call that waited, on the thread of `loop`.

        `on_lost` is told of an incarnation to which a call was lost, on a thread of the engine.
        """
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        self.retry_in: Callable[[], float | None] = lambda: None
        self._server = server
        self._max_pending = max_pending
        self._max_flights = max_flights
        self._loop = loop
        self._hooks = hooks
        self._on_lost = on_lost
        self._lock = reentrant_lock()
        """Owns everything below. Never held while a call ends, or while the engine is given something."""
        self.state = ServerState.CREATED
        self.reason: str | None = None
        self._gates: dict[str, Gate] = {}
        """By their incarnations."""
        self._flights: dict[int, Flight] = {}
        self._backlog: deque[Call] = deque()
        self._finishing: list[tuple[HostLink | None, Callable[[], object]]] = []
        """What is run when no call is under way to a host, or to any."""

    def __len__(self) -> int:
        """How many calls wait."""
        return sum(not call.ended for call in list(self._backlog))

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    # Callers' threads.

    def submit(self, call: Call) -> bool:
        """Send the call, or let it wait for a host. A call that has no chance is ended at once. Always True."""
        flight = None
        with self._lock:
            error = self._refusal()
            if error is None:
                flight = None if self._backlog else self._depart(call)
                if flight is None and not call.ended:
                    error = self._overload()
                    if error is None:
                        self._backlog.append(call)
        if error is not None:
            call.finish(error=error)
        elif flight is not None:
            self._send(flight)
        else:
            if call.observer is not None:
                call.observer.queued()
            self._loop.post(self.send_waiting)
        return True

    def submit_bound(self, call: Call, incarnation: str, start: int) -> None:
        """Send a call to one start of the server on one host, or end it: it never waits for another one.

        It goes there even if others wait, up to twice the calls that a host may have.
        """
        flight = None
        with self._lock:
            gate = self._gates.get(incarnation)
            error = self._refusal()
            if error is None and (gate is None or gate.start != start):
                error = self.session_lost("its server has ended")
            elif error is None and gate is not None and gate.in_flight >= 2 * self._max_flights:
                error = Overloaded(f"{gate.in_flight} calls are under way at one replica of {self._server!r}")
            elif error is None and gate is not None and not gate.takes(call):
                error = ToolDenied(f"the definition of {call.tool} at this replica of {self._server!r} is another one")
            elif error is None and gate is not None:
                flight = self._enter(call, gate, is_bound=True)
        if error is not None:
            call.finish(error=error)
        elif flight is not None:
            self._send(flight)

    def is_open(self, incarnation: str, start: int) -> bool:
        """Whether calls may go to this start of the server."""
        gate = self._gates.get(incarnation)
        return gate is not None and gate.start == start

    def bind(self) -> Gate:
        """Choose a gate for calls that cannot go elsewhere, until `unbind`: one with few of such handles.

        Raises NotConnected or ServerUnavailable if there is none.
        """
        with self._lock:
            error = self._refusal()
            if error is None and self._gates:
                gate = min(self._gates.values(), key=lambda gate: (gate.handles, gate.in_flight))
                gate.handles += 1
                return gate
        raise error or ServerUnavailable(f"server {self._server!r} is not ready; try again when it is")

    def unbind(self, gate: Gate) -> None:
        with self._lock:
            gate.handles -= 1

    def session_lost(self, reason: str) -> SessionLost:
        return SessionLost(f"the replica of server {self._server!r} that this handle stays with is lost: {reason}")

    def expire(self, call: Call) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""
        with self._lock:
            is_waiting = call in self._backlog
        late = timeout_of_waiting(call, self._server, self.state) if is_waiting else call.timed_out()
        return self._give_up(call, late, expired=True)

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        """End a call that its caller has given up. False if it ended just before."""
        return self._give_up(call, error, expired=False)

    def _give_up(self, call: Call, error: MCPError, *, expired: bool) -> bool:
        # An interruption must not leave the call in a table.
        return completed(lambda: self._end(call, error, expired=expired))

    def _end(self, call: Call, error: MCPError, *, expired: bool) -> bool:
        is_ended = call.finish(error=error)
        with self._lock:
            flight = self._flights.get(call.id)
            if flight is not None:
                flight.gate.flights.discard(flight.number)
                del self._flights[call.id]
            with contextlib.suppress(ValueError):
                self._backlog.remove(call)
        if flight is not None:
            gate = flight.gate
            # Not on the thread for deadlines: the engine may take its time.
            cancel = ("cancel", gate.incarnation, flight.number, error.message, expired)
            self._loop.post(lambda: gate.link.tell(*cancel))
            self._loop.post(self._landed)
        return is_ended

    def _depart(self, call: Call) -> Flight | None:
        """Enter a call among the flights, if one can be sent now. With the lock."""
        gate = self._least_busy(call)
        return None if gate is None else self._enter(call, gate)

    def _least_busy(self, call: Call) -> Gate | None:
        best = None
        for gate in self._gates.values():
            if gate.in_flight < (self._max_flights if best is None else best.in_flight) and gate.takes(call):
                best = gate
        return best

    def _enter(self, call: Call, gate: Gate, *, is_bound: bool = False) -> Flight | None:
        if not call.begin_write():
            return None
        # In this order: if the caller's thread is interrupted in between, the call is cancelled, and leaves nothing.
        flight = self._flights[call.id] = Flight(call, gate, is_bound=is_bound)
        gate.flights.add(flight.number)
        return flight

    def _send(self, flight: Flight) -> None:
        link, asked = flight.gate.link, flight.asked()
        link.call(encode(asked), lambda data, failure: self._answered(flight, data, failure), flight.call)

    def _refusal(self) -> MCPError | None:
        if self.state is ServerState.CREATED:
            return NotConnected(f"Not connected to server {self._server!r}: call connect() first")
        if self.state is ServerState.CLOSED:
            return NotConnected(f"Not connected to server {self._server!r}: {self.reason}")
        if self.state is ServerState.FAILED:
            return ServerUnavailable.of(self._server, str(self.reason), self.retry_in())
        return None

    def _overload(self) -> MCPError | None:
        if len(self._backlog) >= self._max_pending:
            self._backlog = deque(call for call in self._backlog if not call.ended)
        if len(self._backlog) < self._max_pending:
            return None
        return Overloaded(f"{len(self._backlog)} calls already wait for server {self._server!r}; try again later")

    # Threads of the engine, callers' threads that wait for their answers, and the thread of the loop.

    def _answered(self, flight: Flight, data: Any, failure: BaseException | None) -> None:
        try:
            if failure is not None:
                self._lost(flight, failure)
                return
            reply = decode_reply(data)
            with self._lock:
                if reply.progress > flight.reported:
                    flight.reply = reply
                    return
            self._arrived(flight, reply)
        except Exception as error:  # noqa: BLE001 - a mistake of ours; the engine must not see it, nor the call hang
            reason = f"internal error: {exception_text(error)}"
            flight.call.finish(error=InvalidResponse(reason, delivery="unknown"))

    def progressed(self, number: int, params: dict[str, Any], now: float) -> None:
        """A report of progress has come; on the thread of the loop."""
        with self._lock:
            flight = self._flights.get(number)
        if flight is None:
            return
        call = flight.call
        if not call.ended:
            call.progressed(now)
            if call.observer is not None:
                call.observer.progressed(params)
            if call.on_progress is not None:
                call.on_progress(params)
        with self._lock:
            flight.reported += 1
            reply = flight.reply
        if reply is not None and reply.progress <= flight.reported:
            self._arrived(flight, reply)

    def _arrived(self, flight: Flight, reply: Reply) -> None:
        call = flight.call
        if not self._land(flight):
            # Of a host that was given up, or of a call that has ended.
            logger.debug("late_answer_dropped", server=self._server, call_id=flight.number)
        elif reply.result is not None:
            flight.succeed(reply.result)
        elif reply.error is not None:
            error = reply.error.restored()
            if error.delivery == "not_sent":
                call.undo_write()
            if flight.is_bound and isinstance(error, ServerCrashed):
                error = self.session_lost(error.message)
            call.finish(error=error)
        else:
            call.undo_write()
            if not reply.is_late:
                self._send_again(flight)
            else:
                # It would be so again, until the host has been greeted.
                self.close(flight.gate.incarnation)
                self._wait_again(flight, "it is not there any more")
                self._on_lost(flight.gate.incarnation, HostLost("it has not heard of this program for too long"))

    def _land(self, flight: Flight) -> bool:
        """Take a call from the flights; False if it is none of them any more."""
        with self._lock:
            landed = self._flights.pop(flight.number, None) is flight
            flight.gate.flights.discard(flight.number)
            waiting = bool(self._backlog or self._finishing)
        if waiting:
            self._loop.post(self._landed)
        return landed

    def _lost(self, flight: Flight, failure: BaseException) -> None:
        """The host of a call was lost, or cannot be reached: the server may have acted on the call, or not."""
        self.close(flight.gate.incarnation)
        if self._land(flight):
            call, reason = flight.call, f"its host was lost: {failure}"
            if flight.is_bound:
                call.finish(error=self.session_lost(reason))
            elif call.repeatable and not call.ended:
                call.prepare_repeat(self.next_id())
                if call.observer is not None:
                    call.observer.repeated(call.id, reason)
                self._wait_again(flight, reason)
            else:
                call.finish(error=ServerCrashed(f"server {self._server!r} was lost during {call.method}: {reason}"))
        self._on_lost(flight.gate.incarnation, failure)

    def _send_again(self, flight: Flight) -> None:
        """The tools of the host have changed, and its listing of them is on its way here."""
        if flight.is_bound:
            self.submit_bound(flight.call, flight.gate.incarnation, flight.gate.start)
        else:
            self._wait_again(flight, "its tools have changed", _AGAIN_SECONDS)

    def _wait_again(self, flight: Flight, reason: str, seconds: float = 0.0) -> None:
        """Have a call wait that was sent before, as the first one, for so long at least if nothing else happens.

        One that is bound to its host ends.
        """
        call = flight.call
        if flight.is_bound:
            call.finish(error=self.session_lost(reason))
            return
        with self._lock:
            error = self._closed() if self.state is ServerState.CLOSED else self._refusal()
            if error is None:
                self._backlog.appendleft(call)
        if error is not None:
            call.finish(error=error)
        elif seconds:
            self._loop.alarm(seconds, self.send_waiting)
        else:
            self._loop.post(self.send_waiting)

    # Calls for clients of a gateway.

    def relayed(self, link: HostLink | None = None) -> list[RequestOwner]:
        """The owners of those that a request of the server, or of that on one host, may belong to."""
        with self._lock:
            calls = [flight.call for flight in self._flights.values() if link in (None, flight.gate.link)]
        return [call.owner for call in calls if call.owner is not None and not call.ended]

    def logged(self, number: int, params: dict[str, Any]) -> None:
        """The server has logged something for a call."""
        with self._lock:
            flight = self._flights.get(number)
        if flight is not None and flight.call.owner is not None:
            flight.call.owner.logged(params)

    # The thread of the loop.

    def listed(self, incarnation: str, number: int) -> None:
        """The client goes by that listing of the host's tools from now on."""
        with self._lock:
            if (gate := self._gates.get(incarnation)) is not None:
                gate.listing = number

    def when_finished(self, task: Callable[[], object], link: HostLink | None = None) -> None:
        """Run `task` once, when no call is under way any more, or none to one host."""
        with self._lock:
            self._finishing.append((link, task))
        self._landed()

    def _landed(self) -> None:
        """A call is not under way any more."""
        finished: list[Callable[[], object]] = []
        with self._lock:
            if self._finishing:
                busy = {flight.gate.link for flight in self._flights.values()}
                is_over = [link not in busy if link else not busy for link, _ in self._finishing]
                finished = [task for (_, task), over in zip(self._finishing, is_over, strict=True) if over]
                self._finishing = [one for one, over in zip(self._finishing, is_over, strict=True) if not over]
        for task in finished:
            task()
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send the calls that wait, if they can be sent."""
        while True:
            with self._lock:
                if not self._backlog:
                    return
                call = self._backlog[0]
                if not call.ended and self._least_busy(call) is None:
                    return
                self._backlog.popleft()
            if call.ended:
                continue
            error = error_of_waited(call, self._server, self._hooks.refusal_of, self._hooks.safe_to_repeat)
            if error is not None:
                call.finish(error=error)
                continue
            with self._lock:
                flight = self._depart(call)
                if flight is None and not call.ended:
                    self._backlog.appendleft(call)
            if flight is None:
                continue
            if call.observer is not None:
                call.observer.resumed()
            self._send(flight)

    def open(self, gate: Gate) -> None:
        """Calls may be sent there from now on."""
        with self._lock:
            for flight in self._flights.values():
                # It may have been closed meanwhile, while calls waited there.
                if flight.gate.incarnation == gate.incarnation:
                    flight.gate.flights.discard(flight.number)
                    flight.gate = gate
                    gate.flights.add(flight.number)
            self._gates[gate.incarnation] = gate
        self.send_waiting()

    def close(self, incarnation: str | None = None) -> None:
        """Calls do not go to that host any more, or to none. Those that were sent end when the engine gives them up."""
        with self._lock:
            if incarnation is None:
                self._gates.clear()
            else:
                self._gates.pop(incarnation, None)

    def move_to(self, state: ServerState, reason: str | None, *, finish: bool = False) -> ServerState:
        """Change the state; returns the old one. Calls that the new state refuses are ended.

        With `finish`, those under way go on, until `end_flights`.
        """
        with self._lock:
            old, self.state, self.reason = self.state, state, reason
            refused = [] if self._refusal() is None else list(self._backlog)
            if refused:
                self._backlog.clear()
            if state is ServerState.CLOSED:
                self._gates.clear()
        for call in refused:
            call.finish(error=self._closed() if state is ServerState.CLOSED else self._refusal())
        if state is ServerState.CLOSED and not finish:
            self.end_flights()
        return old

    def deliver_answers(self, incarnation: str) -> None:
        """That host is lost: calls whose answers only wait for reports of progress have waited long enough."""
        with self._lock:
            flights = [each for each in self._flights.values() if each.gate.incarnation == incarnation]
        for flight in flights:
            if flight.reply is not None:
                self._arrived(flight, flight.reply)

    def end_flights(self, link: HostLink | None = None, error: Callable[[Call], MCPError] | None = None) -> None:
        """End the calls that are under way, or those to one host; by default they are cancelled."""
        with self._lock:
            flights = [flight for flight in self._flights.values() if link in (None, flight.gate.link)]
        for flight in flights:
            if flight.reply is not None:
                # It has only waited for reports of progress, which do not come any more.
                self._arrived(flight, flight.reply)
            elif self._land(flight):
                flight.call.finish(error=self._closed() if error is None else error(flight.call))

    def _closed(self) -> CallCancelled:
        return CallCancelled(f"server {self._server!r} is closed: {self.reason}")

    def after_fork(self) -> None:
        """In a forked child: refuse all calls."""
        self._gates = {}
        self._flights, self._backlog = {}, deque()
        self.state = ServerState.CLOSED
        self.reason = "it belongs to the parent process; create a new client after fork()"
