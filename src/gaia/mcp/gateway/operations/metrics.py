"""The page ``/metrics``: the status of a gateway in Prometheus' text format."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gaia.mcp.gateway.access.checks import BOUNDS, Checks
from gaia.mcp.gateway.access.principal import metric_name
from gaia.mcp.gateway.operations.status import READY_STATES, GatewayStatus
from gaia.mcp.supervision.status import ServerStatus

_PREFIX = "gaia_gateway_"


def metrics_of(status: GatewayStatus, checks: Checks) -> bytes:
    """The page. Metrics of OpenTelemetry's exporter for Prometheus follow, if this process has loaded it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status, checks))
    page: bytes = generate_latest(registry)
    if "opentelemetry.exporter.prometheus" in sys.modules:
        page += generate_latest(REGISTRY)
    return page


class _Status(Collector):
    def __init__(self, status: GatewayStatus, checks: Checks) -> None:
        self._status = status
        self._checks = checks
        self._counts = checks.counts

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield _gauge("uptime_seconds", "Since the gateway started.", status.uptime)
        yield _gauge("draining", "1 while the gateway ends.", float(status.is_draining))
        yield _gauge("max_sessions", "How many sessions there may be.", status.max_sessions)
        reload = status.reload
        if reload is not None:
            yield _gauge("last_reload_timestamp_seconds", "When the files were last read again.", reload.at)
            yield _gauge("last_reload_successful", "0 if the files were refused.", float(reload.error is None))
        yield from self._clients()
        yield from self._calls()
        yield from self._servers()
        yield from self._limits()
        yield from self._audit()
        yield from self._refusals()

    def _clients(self) -> Iterator[Metric]:
        sessions = GaugeMetricFamily(f"{_PREFIX}sessions", "Open sessions.", labels=["client"])
        running = GaugeMetricFamily(f"{_PREFIX}session_requests", "Requests under way in sessions.", labels=["client"])
        counted: Counter[str] = Counter()
        under_way: Counter[str] = Counter()
        for session in self._status.sessions:
            name = metric_name(session.client)
            counted[name] += 1
            under_way[name] += session.running
        for name in counted or {"": 0}:
            sessions.add_metric([name], counted[name])
            running.add_metric([name], under_way[name])
        yield sessions
        yield running

    def _calls(self) -> Iterator[Metric]:
        labels = ["client", "server"]
        ended = CounterMetricFamily(
            f"{_PREFIX}calls", "Calls of clients that have ended, by outcome.", labels=[*labels, "outcome"]
        )
        for (client, server, outcome), count in self._counts.ended.items():
            ended.add_metric([client, server, outcome], count)
        duration = HistogramMetricFamily(
            f"{_PREFIX}call_duration_seconds", "From a client's request to its answer.", labels=labels
        )
        bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
        for key, (counts, seconds) in self._counts.durations().items():
            duration.add_metric(key, list(zip(bounds, counts, strict=True)), seconds)
        yield ended
        yield duration

    def _servers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(f"{_PREFIX}server_up", "1 if it is ready, or at rest until a call.", labels=["server"])
        state = GaugeMetricFamily(f"{_PREFIX}server_state", "1 for the state it is in.", labels=["server", "state"])
        gauges = {
            "in_flight": "Calls handed to the server and not answered yet.",
            "queued": "Calls that wait for the server to be ready.",
            "tool_count": "Tools on offer.",
            "instances": "Processes of single sessions or clients.",
        }
        counters = {
            "calls": "Requests that have ended, failed ones included.",
            "errors": "Those of them that failed.",
            "restarts": "How many times it became ready again after it had ended.",
            "recyclings": "How many times a fresh process took its place while it was ready.",
        }
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            **{
                key: GaugeMetricFamily(f"{_PREFIX}server_{key}", text, labels=["server"])
                for key, text in gauges.items()
            },
            **{
                key: CounterMetricFamily(f"{_PREFIX}server_{key}", text, labels=["server"])
                for key, text in counters.items()
            },
        }
        latency = GaugeMetricFamily(
            f"{_PREFIX}server_latency_seconds",
            "What this share of the last 512 calls did not exceed, waiting included.",
            labels=["server", "quantile"],
        )
        for server in self._status.servers:
            up.add_metric([server.name], float(server.state in READY_STATES))
            state.add_metric([server.name, server.state.value], 1)
            for key, family in families.items():
                family.add_metric([server.name], getattr(server, key))
            for quantile, seconds in _latencies(server):
                latency.add_metric([server.name, quantile], seconds)
        yield from (up, state, *families.values(), latency)

    def _limits(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(f"{_PREFIX}limit_running", "Calls that a limit has let pass.", labels=["limit"])
        waiting = GaugeMetricFamily(f"{_PREFIX}limit_waiting", "Calls that a limit keeps waiting.", labels=["limit"])
        limits = self._checks.limits
        figures = {} if limits is None else limits.figures_by_group()
        for group, (now_running, now_waiting) in figures.items():
            running.add_metric([group], now_running)
            waiting.add_metric([group], now_waiting)
        yield from (running, waiting)

    def _refusals(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(f"{_PREFIX}refusals", "Requests that were refused, by reason.", labels=["reason"])
        for reason, count in self._checks.refusals.counts.items():
            refused.add_metric([reason], count)
        yield refused

    def _audit(self) -> Iterator[Metric]:
        audit = self._checks.audit
        if audit is not None:
            yield _gauge(
                "audit_failing", "1 while calls are refused: lines cannot be written.", audit.failure() is not None
            )
            yield _counter("audit_failures", "Attempts to write lines of the audit that failed.", audit.failures)
            yield _counter("audit_lost_lines", "Lines of the audit that will never be written.", audit.lost_lines)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)


def _latencies(server: ServerStatus) -> Iterator[tuple[str, float]]:
    for quantile, seconds in (("0.5", server.latency_p50), ("0.95", server.latency_p95)):
        if seconds is not None:
            yield quantile, seconds
