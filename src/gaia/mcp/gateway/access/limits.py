"""`Limits`: decides when a client's call may go to a server, and queues it until then.

A call passes several gates at once: those of its client, its server and its tool. If a gate is shut, the call waits in
the lane of its client, server and tool, and the lane waits at that gate. An open gate takes one call of one lane, and
clients take turns. So a client with thousands of calls delays another client by one call at a time. No thread or task
waits. The number of waiting calls and their waiting time are bounded.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from gaia.mcp.errors import InvalidResponse, MCPError, Overloaded
from gaia.mcp.gateway.access.gate import Circuit, CircuitOpen, Gate, Scheduler, Timer
from gaia.mcp.gateway.access.principal import Principal, metric_name
from gaia.mcp.gateway.access.settings import ClientLimits, GatewayLimits, Limit
from gaia.mcp.gateway.access.shared_limits import SharedLimits
from gaia.mcp.tools.tool_filter import ToolFilter

_MAX_PLANS = 4096
"""Plans that are kept. The number of clients is unbounded, so idle plans are dropped and made again when needed."""

_MAX_GROUPS = 1_000
"""Names of limits in metrics. Further limits are counted as "others"."""

_NO_LIMITS = ClientLimits()

_Key = tuple[str | None, ...]


@dataclass(slots=True, eq=False)
class _Plan:
    client: str
    limits: ClientLimits | None
    gates: list[Gate] = field(default_factory=list)
    circuits: list[Circuit] = field(default_factory=list)
    answer_bytes: int | None = None
    calls: deque[Admission] = field(default_factory=deque)
    parked_at: Gate | None = None


@dataclass(slots=True, eq=False)
class Admission:
    """One call, from `Limits.admit` to `end`. For the event loop of the limits."""

    _limits: Limits
    _route: tuple[Principal, str | None, str | None]
    _go: Callable[[Admission], None]
    _refuse: Callable[[MCPError], None]
    _since: float
    waited: float = 0.0
    _plan: _Plan | None = None
    _running: bool = False
    _timer: Timer | None = None
    _trials: Sequence[Circuit] = ()
    """Open circuits for which this call is the trial."""

    def check_answer(self, size: int) -> MCPError | None:
        """The error that replaces a result of `size` bytes; None if the size is permitted."""
        allowed = None if self._plan is None else self._plan.answer_bytes
        if allowed is None or size <= allowed:
            return None
        _, server, tool = self._route
        return InvalidResponse(
            f"{tool or server!r}: the result has {size} bytes, and limits allow {allowed} (answerBytes); ask for less"
        )

    def end(self, *, failed: bool | None = None) -> None:
        """End the admission; required, may be repeated.

        `failed`: whether the tool failed, None if that is not known.
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
        self._moving: dict[Admission, None] = {}
        """Calls that waited when `change` was called and are not handled yet."""
        self._shared: SharedLimits | None = None
        self._to_open: deque[Gate] = deque()
        self._is_opening = False

    def admit(
        self,
        principal: Principal,
        server: str | None,
        tool: str | None,
        go: Callable[[Admission], None],
        refuse: Callable[[MCPError], None],
    ) -> Admission:
        """Call `go` or `refuse` once, now or later, unless the admission ends first.

        `tool` is the tool's own name; None for requests other than tool calls. `server` is None for requests that the
        gateway answers itself: only the client's limits apply. `refuse` gets an error with ``delivery: "not_sent"``.
        Neither function may raise. `Admission.end` must be called after `go`, or when the client goes away while the
        call waits.
        """
        now = self._scheduler.time()
        admission = Admission(self, (principal, server, tool), go, refuse, now)
        self._enter(admission, now)
        return admission

    def share(self, shared: SharedLimits) -> None:
        """Count together with other gateways. Called before the first call."""

        def reopen(gate: Gate) -> None:
            if gate.waiting:
                self._to_open.append(gate)
                self._open()

        self._shared, shared.reopen = shared, reopen

    @property
    def is_shared(self) -> bool | None:
        """Whether the gateways count together now; None if they never do."""
        return None if self._shared is None else self._shared.is_up

    def concern(self, principal: Principal) -> bool:
        settings = self._settings
        return bool(principal.profile.limits or settings.per_client or settings.per_server or settings.per_tool)

    def change(
        self, settings: GatewayLimits, renewed: Callable[[Principal], Principal | None] = lambda principal: principal
    ) -> None:
        """Use other limits, and profiles that may have changed. Waiting calls then wait for the new limits.

        `renewed` returns a client with its current profile, or None to refuse the client's waiting calls.
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
        for gate in self._gates.values():
            gate.waiting.clear()
            if gate.timer is not None:
                gate.timer.cancel()
                gate.timer = None
        now = self._scheduler.time()
        while self._moving:
            # The end of one call may end others: its client may have sent a request that ends the session.
            call = next(iter(self._moving))
            del self._moving[call]
            principal, server, tool = call._route
            if (client := renewed(principal)) is None:
                self._refuse(call, Overloaded("what the client may do has changed while the call waited; try again"))
                continue
            call._route = (client, server, tool)
            self._enter(call, now)

    def figures(self) -> list[tuple[Gate, int]]:
        """The gates that calls have met so far, each with its number of waiting calls."""
        kept = Counter[Gate]()
        for plan in self._plans.values():
            if plan.parked_at is not None:
                kept[plan.parked_at] += len(plan.calls)
        return [(gate, kept[gate]) for gate in self._gates.values()]

    def figures_by_group(self) -> dict[str, tuple[int, int]]:
        """For metrics: running and waiting calls by group of gates. The number of groups is bounded."""
        found: dict[str, tuple[int, int]] = {}
        for gate, waits in self.figures():
            # A server that has not listed its tools yet may be asked for any tool name.
            group = gate.group if gate.group in found or len(found) < _MAX_GROUPS else "others"
            running, waiting = found.get(group, (0, 0))
            found[group] = (running + gate.running, waiting + waits)
        return found

    # Admission of a call.

    def _enter(self, admission: Admission, now: float) -> None:
        principal, server, tool = admission._route
        plan = admission._plan = self._plan_for(principal, server, tool, now)
        if plan.circuits and (error := _open_circuit(plan, now)) is not None:
            self._refuse(admission, error)
        elif (gate := plan.parked_at or _shut_gate(plan, now)) is not None:
            self._wait(admission, plan, gate, now)
        else:
            self._start(admission, plan, now)

    def _start(self, admission: Admission, plan: _Plan, now: float) -> None:
        if plan.circuits:
            # Check again: the circuit may have opened while the call waited.
            if (error := _open_circuit(plan, now)) is not None:
                self._refuse(admission, error)
                return
            admission._trials = [circuit for circuit in plan.circuits if circuit.enter()]
        for gate in plan.gates:
            gate.enter()
        admission._running = True
        admission._go(admission)

    def _wait(self, admission: Admission, plan: _Plan, gate: Gate, now: float) -> None:
        settings, client = self._settings, plan.client
        if self._waiting[client] >= settings.waiting_per_client or self._waiting.total() >= settings.waiting:
            count = self._waiting[client]
            many = f"{count} calls of client {client!r}" if count >= settings.waiting_per_client else "too many calls"
            message = f"{many} wait for limits already, and this one would wait for {gate.describe()}; try again later"
            self._refuse(admission, Overloaded(message))
            return
        until = admission._since + settings.max_wait
        admission._timer = self._scheduler.call_later(max(0.0, until - now), self._expire, admission)
        self._waiting[client] += 1
        plan.calls.append(admission)
        if plan.parked_at is None:
            self._park(plan, gate, now)

    def _expire(self, admission: Admission) -> None:
        plan = admission._plan
        assert plan is not None, "the timer of a call that is over was cancelled"
        assert plan.parked_at is not None, "a lane with calls waits at a gate"
        where = plan.parked_at.describe()
        self._leave_lane(admission, plan)
        waited = f"the call waited {admission.waited:.3g} s because of a limit: {where}"
        self._refuse(admission, Overloaded(f"{waited}; try later"))

    def _refuse(self, admission: Admission, error: MCPError) -> None:
        admission._plan = None
        admission.waited = self._scheduler.time() - admission._since
        admission._refuse(error)

    # End of a call.

    def _end(self, admission: Admission, failed: bool | None) -> None:
        plan = admission._plan
        if plan is None:
            self._moving.pop(admission, None)
            return
        admission._plan = None
        if not admission._running:
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
        admission.waited = self._scheduler.time() - admission._since
        if admission._timer is not None:
            admission._timer.cancel()
        plan.calls.remove(admission)
        self._waiting[plan.client] -= 1
        if not self._waiting[plan.client]:
            del self._waiting[plan.client]
        if not plan.calls and plan.parked_at is not None:
            plan.parked_at.unpark(plan)

    # Gates.

    def _open(self) -> None:
        """Let calls pass the gates in `_to_open`. Ended calls append their gates to it, so there is no recursion."""
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
            admission = plan.calls[0]
            self._leave_lane(admission, plan)
            if plan.calls:
                gate.park(plan)
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
        shared, client = self._settings, principal.name
        plan = _Plan(client, principal.profile.limits)
        own = plan.limits or shared.per_client or _NO_LIMITS
        who, group = f"client {client!r}", f"client {metric_name(client)!r}"
        self._add(plan, ("client", client), who, own, now, group)
        if server is None:
            return plan
        where = f" on server {server!r}"
        for pattern, limit in own.per_server.items():
            if fnmatchcase(server, pattern):
                self._add(plan, ("client", client, pattern, server), who + where, limit, now, group + where)
        for pattern, limit in shared.per_server.items():
            if fnmatchcase(server, pattern):
                self._add(plan, ("server", pattern, server), f"server {server!r}", limit, now)
        if tool is None:
            return plan
        where = f"tool {tool!r} of {server!r}"
        for pattern, limit in own.per_tool.items():
            if _names(pattern, server, tool):
                key = ("client tool", client, pattern, server, tool)
                self._add(plan, key, f"{who} and {where}", limit, now, f"{group} and {where}")
        for pattern, limit in shared.per_tool.items():
            if _names(pattern, server, tool):
                self._add(plan, ("tool", pattern, server, tool), where, limit, now)
        return plan

    def _add(self, plan: _Plan, key: _Key, name: str, limit: Limit, now: float, group: str | None = None) -> None:
        if limit.answer_bytes is not None:
            plan.answer_bytes = min(plan.answer_bytes or limit.answer_bytes, limit.answer_bytes)
        if limit.concurrent is not None or limit.per_second is not None:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = Gate(name, limit, now, group)
                if self._shared is not None:
                    gate.leased = self._shared.gate(key, gate)
            elif gate.limit != limit:
                gate.change(limit, now)
            plan.gates.append(gate)
        if limit.circuit is not None:
            circuit = self._circuits.get(key)
            if circuit is None or circuit.settings != limit.circuit:
                circuit = self._circuits[key] = Circuit(name, limit.circuit)
            plan.circuits.append(circuit)

    def _forget(self, now: float) -> None:
        """Drop plans without waiting calls, then the idle gates and closed circuits that no remaining plan uses."""
        self._plans = {key: plan for key, plan in self._plans.items() if plan.calls}
        used = {gate for plan in self._plans.values() for gate in plan.gates}
        self._gates = {key: gate for key, gate in self._gates.items() if gate in used or not gate.is_idle(now)}
        self._circuits = {key: circuit for key, circuit in self._circuits.items() if not circuit.is_closed}


def _shut_gate(plan: _Plan, now: float, besides: Gate | None = None) -> Gate | None:
    """The first gate that the lane's next call cannot pass, because it is shut or other lanes wait there."""
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


def _names(pattern: str, server: str, tool: str) -> bool:
    return ToolFilter([pattern], short_names=True).allows(server, tool)
