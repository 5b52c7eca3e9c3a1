"""The page ``/metrics``: the status of a gateway in Prometheus' text format."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gaia.mcp.gateway.access.checks import BOUNDS, Checks
from gaia.mcp.gateway.access.principal import metric_name
from gaia.mcp.gateway.operations.status import READY_STATES, GatewayStatus

_PREFIX = "gaia_gateway_"

_SERVER_GAUGES = {
    "in_flight": "Calls handed to the server and not answered yet.",
    "queued": "Calls that wait for the server to be ready.",
    "tool_count": "Tools on offer.",
    "instances": "Processes of single sessions or clients.",
}
_SERVER_COUNTERS = {
    "calls": "Requests that have ended, failed ones included.",
    "errors": "Those of them that failed.",
    "restarts": "How many times it became ready again after it had ended.",
    "recyclings": "How many times a fresh process took its place while it was ready.",
}
_Values = Mapping[Any, float]


def metrics_of(status: GatewayStatus, checks: Checks) -> bytes:
    """The page as text. If OpenTelemetry's Prometheus exporter is loaded, its metrics follow."""
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

    def collect(self) -> Iterator[Metric]:
        status, checks = self._status, self._checks
        yield _gauge("uptime_seconds", "Since the gateway started.", status.uptime)
        yield _gauge("draining", "1 while the gateway ends.", float(status.is_draining))
        yield _gauge("max_sessions", "How many sessions there may be.", status.max_sessions)
        if (reload := status.reload) is not None:
            yield _gauge("last_reload_timestamp_seconds", "When the files were last read again.", reload.at)
            yield _gauge("last_reload_successful", "0 if the files were refused.", float(reload.error is None))
        yield from self._clients()
        yield from self._calls()
        yield from self._servers()
        limits = {} if checks.limits is None else checks.limits.figures_by_group()
        running = {(group,): figures[0] for group, figures in limits.items()}
        waiting = {(group,): figures[1] for group, figures in limits.items()}
        yield _gauges("limit_running", "Calls that a limit has let pass.", running, "limit")
        yield _gauges("limit_waiting", "Calls that a limit keeps waiting.", waiting, "limit")
        if checks.limits is not None and (is_shared := checks.limits.is_shared) is not None:
            yield _gauge("limits_shared", "0 while Redis does not answer: limits count here alone.", float(is_shared))
        if (audit := checks.audit) is not None:
            is_failing = float(audit.failure() is not None)
            yield _gauge("audit_failing", "1 while calls are refused: lines cannot be written.", is_failing)
            yield _counter("audit_failures", "Attempts to write lines of the audit that failed.", audit.failures)
            yield _counter("audit_lost_lines", "Lines of the audit that will never be written.", audit.lost_lines)
        refused: _Values = {(reason,): count for reason, count in checks.refusals.counts.items()}
        yield _counters("refusals", "Requests that were refused, by reason.", refused, "reason")

    def _clients(self) -> Iterator[Metric]:
        sessions = Counter((metric_name(session.client),) for session in self._status.sessions)
        running = Counter(dict.fromkeys(sessions, 0))
        for session in self._status.sessions:
            running[(metric_name(session.client),)] += session.running
        nothing = {("",): 0}
        yield _gauges("sessions", "Open sessions.", sessions or nothing, "client")
        yield _gauges("session_requests", "Requests under way in sessions.", running or nothing, "client")

    def _calls(self) -> Iterator[Metric]:
        counts, labels = self._checks.counts, ("client", "server")
        yield _counters("calls", "Calls of clients that have ended, by outcome.", counts.ended, *labels, "outcome")
        text = "From a client's request to its answer."
        duration = HistogramMetricFamily(f"{_PREFIX}call_duration_seconds", text, labels=labels)
        bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
        for key, (buckets, seconds) in counts.durations().items():
            duration.add_metric(key, list(zip(bounds, buckets, strict=True)), seconds)
        yield duration

    def _servers(self) -> Iterator[Metric]:
        servers = self._status.servers
        up = {(server.name,): float(server.state in READY_STATES) for server in servers}
        yield _gauges("server_up", "1 if it is ready, or at rest until a call.", up, "server")
        states = {(server.name, server.state.value): 1.0 for server in servers}
        yield _gauges("server_state", "1 for the state it is in.", states, "server", "state")
        for families, make in ((_SERVER_GAUGES, _gauges), (_SERVER_COUNTERS, _counters)):
            for key, text in families.items():
                yield make(
                    f"server_{key}", text, {(server.name,): getattr(server, key) for server in servers}, "server"
                )
        latencies = {
            (server.name, quantile): seconds
            for server in servers
            for quantile, seconds in (("0.5", server.latency_p50), ("0.95", server.latency_p95))
            if seconds is not None
        }
        text = "What this share of the last 512 calls did not exceed, waiting included."
        yield _gauges("server_latency_seconds", text, latencies, "server", "quantile")


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", text, value=value)


def _gauges(name: str, text: str, values: _Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counters(name: str, text: str, values: _Values, *labels: str) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
