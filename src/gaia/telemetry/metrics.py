"""The instruments: the histograms of the conventions for MCP, and the counters of supervision.

They belong to the meter provider that the application sets, before or after the import of this module. Without one,
recording costs less than 0.2 µs. An exception of a provider is only logged, once for each type.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from opentelemetry import metrics as api
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.util.types import AttributeValue

from gaia.runtime.locks import WeakObjects
from gaia.runtime.log import exception_text, get_logger
from gaia.telemetry.attributes import REPLICA, SERVER_NAME

BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""In seconds. The conventions define them for all their histograms of durations."""

logger = get_logger(__name__)

_failures: set[type[BaseException]] = set()

Labels = Mapping[str, AttributeValue]


class SafeCounter:
    def __init__(self, instrument: api.Counter) -> None:
        self.instrument = instrument

    def add(self, amount: int, labels: Labels) -> None:
        try:
            self.instrument.add(amount, labels)
        except Exception as error:  # noqa: BLE001 - the application's provider may raise anything
            _failed(error)


class SafeHistogram:
    def __init__(self, instrument: Histogram) -> None:
        self.instrument = instrument

    def record(self, amount: float, labels: Labels) -> None:
        try:
            self.instrument.record(amount, labels)
        except Exception as error:  # noqa: BLE001 - as above
            _failed(error)


def _failed(error: BaseException) -> None:
    if type(error) not in _failures:
        _failures.add(type(error))
        logger.error("metering_failed", error=exception_text(error))


class Observed(Protocol):
    """A server, which the gauges read on any thread."""

    name: str

    @property
    def replica(self) -> int | None:
        """Its number, if it is one of several replicas. Calls that wait for any replica are not counted with it."""

    @property
    def queued(self) -> int: ...

    @property
    def in_flight(self) -> int: ...


observed: WeakObjects[Observed] = WeakObjects(lambda one: observed.discard(one))  # noqa: PLW0108 - it is made here
"""The running servers. Thread-safe. A forked child has none: they belong to the parent."""


class Instruments:
    """All instruments of one meter. `gaia.mcp.server.name` is an attribute of each."""

    def __init__(self, meter: Meter) -> None:
        def durations(name: str, description: str) -> SafeHistogram:
            return SafeHistogram(
                meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=BUCKETS)
            )

        def counter(name: str, unit: str, description: str) -> SafeCounter:
            return SafeCounter(meter.create_counter(name, unit, description))

        def calls(name: str, figure: Callable[[Observed], int], description: str) -> None:
            observe = functools.partial(_observations, figure)
            meter.create_observable_up_down_counter(name, [observe], "{call}", description)

        # The conventions define the first three, with their descriptions.
        self.operation_duration = durations(
            "mcp.client.operation.duration",
            "The duration of the MCP request or notification as observed on the sender from the time it "
            "was sent until the response or ack is received.",
        )
        self.session_duration = durations(
            "mcp.client.session.duration", "The duration of the MCP session as observed on the MCP client."
        )
        self.served_duration = durations(
            "mcp.server.operation.duration",
            "MCP request or notification duration as observed on the receiver from the time it was "
            "received until the result or ack is sent.",
        )
        self.recovery_duration = durations(
            "gaia.mcp.server.recovery.duration", "From the moment a server's end was noticed until it was ready again."
        )
        self.limit_wait_duration = durations(
            "gaia.mcp.gateway.limit.wait.duration",
            "How long a call of a gateway's client waited for limits, if it had to.",
        )
        self.restarts = counter(
            "gaia.mcp.server.restarts", "{restart}", "Servers that are ready again after they ended."
        )
        self.crashes = counter("gaia.mcp.server.crashes", "{crash}", "Servers that were lost, by reason.")
        self.standby_failures = counter(
            "gaia.mcp.server.standby.failures",
            "{failure}",
            "Stand-bys that could not be started or were lost before they were needed.",
        )
        self.recyclings = counter(
            "gaia.mcp.server.recyclings",
            "{recycling}",
            "Fresh processes that took the place of servers that were ready, by reason.",
        )
        self.refused = counter(
            "gaia.mcp.client.calls.refused",
            "{call}",
            "Calls that were not sent: denied tools, full queues, servers that are down.",
        )
        self.junk = counter("gaia.mcp.server.junk", "By", "What servers wrote on stdout that is no JSON-RPC message.")
        self.callbacks_dropped = counter(
            "gaia.mcp.client.callbacks.dropped",
            "{callback}",
            "Events and reports of progress that listeners and callbacks were too slow for.",
        )
        calls("gaia.mcp.client.calls.queued", lambda one: one.queued, "Calls that wait for their server to be ready.")
        calls("gaia.mcp.client.calls.in_flight", lambda one: one.in_flight, "Calls that wait for their answer.")


def _observations(figure: Callable[[Observed], int], _options: CallbackOptions) -> Iterable[Observation]:
    total: Counter[tuple[str, int | None]] = Counter()
    for one in observed.present():
        # Several clients may use the same name.
        total[one.name, one.replica] += figure(one)
    return [
        Observation(count, {SERVER_NAME: server} if replica is None else {SERVER_NAME: server, REPLICA: replica})
        for (server, replica), count in total.items()
    ]


instruments = Instruments(api.get_meter("gaia.mcp"))


def metering_is_off() -> bool:
    """Whether the process has no meter yet. If the private name below changes, everything is recorded."""
    return getattr(instruments.operation_duration.instrument, "_real_instrument", _UNKNOWN) is None


_UNKNOWN = object()
