"""`Limits`: when a call of a client may go to a server, and what becomes of it until then.

A call passes several gates at once: those of its client, of its server and of its tool. If one of them is shut, the
call waits in the lane of its client, server and tool, and the lane at that gate. A gate that opens lets in one call of
one lane, of each client by turns, so that a client with thousands of calls delays others by one call at a time. No
thread and no task waits; what may wait is bounded in number and time.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from gaia.mcp.errors import InvalidResponse, MCPError, Overloaded
from gaia.mcp.gateway.access.circuit import Circuit, CircuitOpen
from gaia.mcp.gateway.access.gate import Gate, Scheduler, Timer
from gaia.mcp.gateway.access.limit_settings import ClientLimits, GatewayLimits, Limit
from gaia.mcp.gateway.access.principal import Principal, metric_name
from gaia.mcp.tools.tool_filter import ToolFilter

_MAX_PLANS = 4096
"""More are forgotten and made again: clients that are known by the claims of tokens are without number."""

_MAX_GROUPS = 1_000
"""Names of limits in metrics. Further limits are counted together."""

_Key = tuple[str | None, ...]


class _Plan:
    """What calls of one client to one tool of a server have to pass; also the lane of those that wait."""

    __slots__ = ("answer_bytes", "calls", "circuits", "client", "gates", "limits", "parked_at")

    def __init__(self, client: str, limits: ClientLimits | None) -> None:
        self.client = client
        self.limits = limits
        """Those of the profile that the plan was made for."""
        self.gates: list[Gate] = []
        self.circuits: list[Circuit] = []
        self.answer_bytes: int | None = None
        self.calls: deque[Admission] = deque()
        self.parked_at: Gate | None = None


class Admission:
    """One call, from `Limits.admit` to `end`. For the event loop of the limits."""

    __slots__ = (
        "_go",
        "_limits",
        "_plan",
        "_refuse",
        "_route",
        "_running",
        "_since",
        "_timer",
        "_trials",
        "waited",
    )

    def __init__(
        self,
        limits: Limits,
        route: tuple[Principal, str | None, str | None],
        go: Callable[[Admission], None],
        refuse: Callable[[MCPError], None],
        now: float,
    ) -> None:
        self.waited = 0.0
        """Seconds that the call waited for limits."""
        self._limits = limits
        self._route = route
        self._go = go
        self._refuse = refuse
        self._plan: _Plan | None = None
        """None when the admission is over."""
        self._running = False
        self._since = now
        self._timer: Timer | None = None
        """When it has waited for too long."""
        self._trials: list[Circuit] = []
        """Open circuits that this call is the trial of."""

    def check_answer(self, size: int) -> MCPError | None:
        """The error that takes the place of a result of `size` bytes; None if the result is not too large."""
        allowed = None if self._plan is None else self._plan.answer_bytes
        if allowed is None or size <= allowed:
            return None
        _, server, tool = self._route
        return InvalidResponse(
            f"{tool or server!r}: the result has {size} bytes, and limits allow {allowed} (answerBytes); ask for less"
        )

    def end(self, *, failed: bool | None = None) -> None:
        """The call is over, or its client no longer waits for it. Has to be called; harmless when it was.

        `failed` says whether the tool failed to do what it was asked to; None if the call says nothing about that.
        """
        self._limits._end(self, failed)


class Limits:
    """Admits calls. For one event loop, whose `time` and `call_later` it uses."""

    def __init__(self, settings: GatewayLimits, scheduler: Scheduler) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._plans: dict[tuple[str, str | None, str | None], _Plan] = {}
        self._gates: dict[_Key, Gate] = {}
        self._circuits: dict[_Key, Circuit] = {}
        self._waiting: Counter[str] = Counter()
        """How many calls of each client wait."""
        self._all_waiting = 0
        self._moving: dict[Admission, None] = {}
        """Calls that waited for the limits before, and that `change` has yet to look at."""
        self._to_open: deque[Gate] = deque()
        """Gates that may let in calls now."""
        self._is_opening = False

    def admit(
        self,
        principal: Principal,
        server: str | None,
        tool: str | None,
        go: Callable[[Admission], None],
        refuse: Callable[[MCPError], None],
    ) -> Admission:
        """Have `go` or `refuse` called: one of them, once, now or later, unless the admission is ended before.

        `tool` is the tool's own name; None for requests that are no tool calls. `server` is None for those that no
        server gets: only the limits of the client count. `refuse` gets an error with ``delivery: "not_sent"``. Neither
        function may raise. After `go`, and also when the client goes away while the call waits, `Admission.end` has to
        be called.
        """
        now = self._scheduler.time()
        admission = Admission(self, (principal, server, tool), go, refuse, now)
        self._enter(admission, now)
        return admission

    def concern(self, principal: Principal) -> bool:
        """Whether any limit may hold for a call of this client."""
        settings = self._settings
        return bool(principal.profile.limits or settings.per_client or settings.per_server or settings.per_tool)

    def change(
        self, settings: GatewayLimits, renewed: Callable[[Principal], Principal | None] = lambda principal: principal
    ) -> None:
        """Continue with other limits, and with profiles that may have changed; calls that wait do so for these.

        `renewed` gives a client with its profile of now. Calls of one for which it gives None are refused.
        """
        waiting = [call for plan in self._plans.values() for call in plan.calls]
        for call in sorted(waiting, key=lambda each: each._since):
            self._moving[call] = None
            call._plan = None
            if call._timer is not None:
                call._timer.cancel()
        self._settings = settings
        self._plans.clear()
        self._waiting.clear()
        self._all_waiting = 0
        for gate in self._gates.values():
            gate.waiting.clear()
            if gate.timer is not None:
                gate.timer.cancel()
                gate.timer = None
        now = self._scheduler.time()
        while self._moving:
            # The end of one call may end others, as when its client has sent what ends its session after it.
            call = next(iter(self._moving))
            del self._moving[call]
            principal, server, tool = call._route
            if (client := renewed(principal)) is None:
                self._refuse(call, Overloaded("what the client may do has changed while the call waited; try again"))
                continue
            call._route = (client, server, tool)
            self._enter(call, now)

    def figures(self) -> list[tuple[Gate, int]]:
        """The limits that calls have met so far, and how many calls each of them keeps waiting."""
        kept = Counter[Gate]()
        for plan in self._plans.values():
            if plan.parked_at is not None:
                kept[plan.parked_at] += len(plan.calls)
        return [(gate, kept[gate]) for gate in self._gates.values()]

    def figures_by_group(self) -> dict[str, tuple[int, int]]:
        """For metrics: calls that have passed and calls that wait, by the groups of gates, of which there are few."""
        found: dict[str, tuple[int, int]] = {}
        for gate, waits in self.figures():
            # A server that has listed no tools yet may be asked for any name.
            group = gate.group if gate.group in found or len(found) < _MAX_GROUPS else "others"
            running, waiting = found.get(group, (0, 0))
            found[group] = (running + gate.running, waiting + waits)
        return found

    # A call's way in.

    def _enter(self, admission: Admission, now: float) -> None:
        principal, server, tool = admission._route
        plan = admission._plan = self._plan_for(principal, server, tool, now)
        if plan.circuits and (error := _open_circuit(plan, now)) is not None:
            self._refuse(admission, error)
        elif plan.calls:
            self._wait(admission, plan, now)
        elif (gate := _shut_gate(plan, now)) is not None:
            self._wait(admission, plan, now, gate)
        else:
            self._start(admission, plan, now)

    def _start(self, admission: Admission, plan: _Plan, now: float) -> None:
        if plan.circuits:
            # Looked at again: it may have opened while the call waited.
            if (error := _open_circuit(plan, now)) is not None:
                self._refuse(admission, error)
                return
            admission._trials = [circuit for circuit in plan.circuits if circuit.enter()]
        for gate in plan.gates:
            gate.enter()
        admission._running = True
        admission._go(admission)

    def _wait(self, admission: Admission, plan: _Plan, now: float, gate: Gate | None = None) -> None:
        """Queue a call, and if it is the first of its lane, the lane at `gate`."""
        settings, client = self._settings, plan.client
        where = gate or plan.parked_at
        assert where is not None, "a lane with calls waits at a gate"
        if self._waiting[client] >= settings.waiting_per_client or self._all_waiting >= settings.waiting:
            count = self._waiting[client]
            many = f"{count} calls of client {client!r}" if count >= settings.waiting_per_client else "too many calls"
            message = f"{many} wait for limits already, and this one would wait for {where.describe()}; try again later"
            self._refuse(admission, Overloaded(message))
            return
        until = admission._since + settings.max_wait
        admission._timer = self._scheduler.call_later(max(0.0, until - now), self._expire, admission)
        self._waiting[client] += 1
        self._all_waiting += 1
        plan.calls.append(admission)
        if gate is not None:
            self._park(plan, gate, now)

    def _expire(self, admission: Admission) -> None:
        """The call has waited for as long as it may."""
        plan, now = admission._plan, self._scheduler.time()
        assert plan is not None, "the timer of a call that is over was cancelled"
        assert plan.parked_at is not None, "a lane with calls waits at a gate"
        where = plan.parked_at.describe()
        waited = f"the call waited {now - admission._since:.3g} s because of a limit: {where}"
        self._leave_lane(admission, plan)
        self._refuse(admission, Overloaded(f"{waited}; try later"))

    def _refuse(self, admission: Admission, error: MCPError) -> None:
        admission._plan = None
        admission.waited = self._scheduler.time() - admission._since
        admission._refuse(error)

    # A call's way out.

    def _end(self, admission: Admission, failed: bool | None) -> None:
        plan = admission._plan
        if plan is None:
            self._moving.pop(admission, None)
            return
        admission._plan = None
        if not admission._running:
            admission.waited = self._scheduler.time() - admission._since
            self._leave_lane(admission, plan)
            return
        for circuit in plan.circuits:
            circuit.note(failed, trial=circuit in admission._trials, now=self._scheduler.time())
        for gate in plan.gates:
            gate.leave()
            if gate.waiting:
                self._to_open.append(gate)
        if self._to_open:
            self._open()

    def _leave_lane(self, admission: Admission, plan: _Plan) -> None:
        if admission._timer is not None:
            admission._timer.cancel()
        plan.calls.remove(admission)
        self._note_left(plan.client)
        if not plan.calls and plan.parked_at is not None:
            plan.parked_at.unpark(plan)

    def _note_left(self, client: str) -> None:
        self._all_waiting -= 1
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]

    # Gates.

    def _open(self) -> None:
        """Let in what may pass. What that calls may end other calls: their gates come next, without recursion."""
        if self._is_opening:
            return
        self._is_opening = True
        try:
            while self._to_open:
                self._let_in(self._to_open.popleft())
        finally:
            self._is_opening = False

    def _let_in(self, gate: Gate) -> None:
        now = self._scheduler.time()
        while gate.waiting and gate.delay(now) == 0:
            plan = gate.next_lane()
            assert isinstance(plan, _Plan), "the only lanes there are"
            if (other := _shut_gate(plan, now, besides=gate)) is not None:
                self._park(plan, other, now)
                continue
            admission = plan.calls.popleft()
            if plan.calls:
                gate.park(plan)
            self._note_left(plan.client)
            if admission._timer is not None:
                admission._timer.cancel()
            admission.waited = now - admission._since
            self._start(admission, plan, now)
        self._set_timer(gate, now)

    def _park(self, plan: _Plan, gate: Gate, now: float) -> None:
        gate.park(plan)
        self._set_timer(gate, now)

    def _set_timer(self, gate: Gate, now: float) -> None:
        if gate.waiting and gate.timer is None and (delay := gate.delay(now)) is not None:
            gate.timer = self._scheduler.call_later(delay, self._on_timer, gate)

    def _on_timer(self, gate: Gate) -> None:
        gate.timer = None
        self._to_open.append(gate)
        self._open()

    # Plans.

    def _plan_for(self, principal: Principal, server: str | None, tool: str | None, now: float) -> _Plan:
        key = (principal.name, server, tool)
        plan = self._plans.get(key)
        if plan is not None and (plan.limits is principal.profile.limits or plan.calls):
            return plan
        if len(self._plans) >= _MAX_PLANS:
            self._forget(now)
        plan = self._plans[key] = self._new_plan(principal, server, tool, now)
        return plan

    def _new_plan(self, principal: Principal, server: str | None, tool: str | None, now: float) -> _Plan:
        limits, shared, client = principal.profile.limits, self._settings, principal.name
        plan, group = _Plan(client, limits), metric_name(client)
        own = limits or shared.per_client or ClientLimits()
        self._add(plan, ("client", client), f"client {client!r}", own, now, f"client {group!r}")
        for pattern, limit in _matching_servers(own.per_server, server):
            rest = f"on server {server!r}"
            key: _Key = ("client", client, pattern, server)
            self._add(plan, key, f"client {client!r} {rest}", limit, now, f"client {group!r} {rest}")
        for pattern, limit in _matching_servers(shared.per_server, server):
            self._add(plan, ("server", pattern, server), f"server {server!r}", limit, now)
        if server is not None and tool is not None:
            for pattern, limit in _matching_tools(own.per_tool, server, tool):
                rest = f"and tool {tool!r} of {server!r}"
                key = ("client tool", client, pattern, server, tool)
                self._add(plan, key, f"client {client!r} {rest}", limit, now, f"client {group!r} {rest}")
            for pattern, limit in _matching_tools(shared.per_tool, server, tool):
                self._add(plan, ("tool", pattern, server, tool), f"tool {tool!r} of {server!r}", limit, now)
        return plan

    def _add(self, plan: _Plan, key: _Key, name: str, limit: Limit, now: float, group: str | None = None) -> None:
        if limit.answer_bytes is not None:
            plan.answer_bytes = min(plan.answer_bytes or limit.answer_bytes, limit.answer_bytes)
        if limit.concurrent is not None or limit.per_second is not None:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = Gate(name, limit, now, group)
            elif gate.limit != limit:
                gate.change(limit, now)
            plan.gates.append(gate)
        if limit.circuit is not None:
            circuit = self._circuits.get(key)
            if circuit is None or circuit.settings != limit.circuit:
                circuit = self._circuits[key] = Circuit(name, limit.circuit)
            plan.circuits.append(circuit)

    def _forget(self, now: float) -> None:
        """Make room: plans without waiting calls, and of their gates and circuits those that remember nothing."""
        self._plans = {key: plan for key, plan in self._plans.items() if plan.calls}
        used = {gate for plan in self._plans.values() for gate in plan.gates}
        self._gates = {key: gate for key, gate in self._gates.items() if gate in used or not gate.is_idle(now)}
        self._circuits = {key: circuit for key, circuit in self._circuits.items() if not circuit.is_closed}


def _shut_gate(plan: _Plan, now: float, besides: Gate | None = None) -> Gate | None:
    """The first gate that the next call of a lane cannot pass: it is shut, or others wait there already."""
    for gate in plan.gates:
        if gate is not besides and (gate.waiting or gate.delay(now) != 0):
            return gate
    return None


def _open_circuit(plan: _Plan, now: float) -> MCPError | None:
    for circuit in plan.circuits:
        if (retry_in := circuit.retry_in(now)) is not None:
            return CircuitOpen(
                f"{circuit.name} has failed too often; calls are let through again in {math.ceil(retry_in)} s",
                retry_in=retry_in,
            )
    return None


def _matching_servers(limits: Mapping[str, Limit], server: str | None) -> Iterator[tuple[str, Limit]]:
    return (
        (pattern, limit) for pattern, limit in limits.items() if server is not None and fnmatchcase(server, pattern)
    )


def _matching_tools(limits: Mapping[str, Limit], server: str, tool: str) -> Iterator[tuple[str, Limit]]:
    return ((pattern, limit) for pattern, limit in limits.items() if _names(pattern, server, tool))


def _names(pattern: str, server: str, tool: str) -> bool:
    return ToolFilter([pattern], short_names=True).allows(server, tool)
