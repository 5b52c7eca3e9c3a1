"""Sets the OpenTelemetry SDK up, for applications that do not do it themselves. The library never does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gaia.mcp.errors import ConfigError
from gaia.telemetry import content, spans
from gaia.telemetry.content import ContentHook

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import Sampler

__all__ = ["Telemetry", "configure"]

_SERVICE: Final = "gaia"
_EXTRA: Final = "install it with: pip install 'gaia-mcp[otel]'"


class Telemetry:
    """What `configure` has set up. Thread-safe."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracers = tracers
        self._meters = meters

    def flush(self, timeout: float = 10.0) -> bool:
        """Export what has been recorded; False if that took longer than `timeout` seconds."""
        milliseconds = int(timeout * 1000)
        done = self._tracers is None or self._tracers.force_flush(milliseconds)
        return (self._meters is None or self._meters.force_flush(milliseconds)) and done

    def shutdown(self) -> None:
        """Export what has been recorded, and record nothing more. Happens by itself when the interpreter exits."""
        if self._tracers is not None:
            self._tracers.shutdown()
        if self._meters is not None:
            self._meters.shutdown()


def configure(
    traces: str | None = None,
    *,
    service_name: str | None = None,
    sample_ratio: float | None = None,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    prometheus_port: int | None = None,
    content_hook: ContentHook | None = None,
    reuse_execute_tool_spans: bool = True,
) -> Telemetry:
    """Record traces and metrics of this process. Call it once, before the first call is made.

    `traces` is where spans go: ``"console"`` (lines on standard error), ``"otlp"`` (OTLP over HTTP, metrics too), or
    the path of a file that ends in ``.jsonl``. None records no traces. `prometheus_port` serves the metrics for
    Prometheus on 127.0.0.1, at ``/metrics``; 0 is any free port.

    `service_name`, `sample_ratio` (0 to 1, of the traces that begin here), `endpoint` (``http://localhost:4318``) and
    `headers` are what OpenTelemetry's own variables say if they are not given: ``OTEL_SERVICE_NAME``,
    ``OTEL_TRACES_SAMPLER``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``.

    `content_hook` and `reuse_execute_tool_spans`: see `set_content_hook` and the function of that name.

    Raises `ConfigError` for a destination that cannot be used, if the extra ``gaia-mcp[otel]`` is needed and
    missing, and if the process has a provider already.
    """
    if traces is None and prometheus_port is None:
        raise ConfigError('there is nothing to record: give traces="console", "otlp" or a path, or prometheus_port')
    if sample_ratio is not None and not 0 <= sample_ratio <= 1:
        raise ConfigError(f"sample_ratio: must be between 0 and 1, not {sample_ratio!r}")
    _require_no_provider(traces=traces is not None, metrics=traces == "otlp" or prometheus_port is not None)
    resource = _resource(service_name)
    processor = None if traces is None else _processor(traces, endpoint, headers)
    readers = [_otlp_reader(endpoint, headers)] if traces == "otlp" else []
    if prometheus_port is not None:
        readers.append(_prometheus_reader(prometheus_port))
    telemetry = Telemetry(
        None if processor is None else _set_tracers(processor, resource, _sampler(sample_ratio)),
        _set_meters(readers, resource) if readers else None,
    )
    content.set_content_hook(content_hook)
    spans.reuse_execute_tool_spans(reuse_execute_tool_spans)
    return telemetry


def _require_no_provider(*, traces: bool, metrics: bool) -> None:
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import get_tracer_provider

    for wanted, present in (
        (traces, isinstance(get_tracer_provider(), TracerProvider)),
        (metrics, isinstance(get_meter_provider(), MeterProvider)),
    ):
        if wanted and present:
            raise ConfigError(
                "OpenTelemetry is already set up in this process, which it can be only once; "
                "add exporters to the provider that is there instead"
            )


def _resource(service_name: str | None) -> Resource:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    if service_name is None and os.environ.get("OTEL_SERVICE_NAME") is None:
        service_name = _SERVICE
    return Resource.create({} if service_name is None else {SERVICE_NAME: service_name})


def _sampler(ratio: float | None) -> Sampler | None:
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    # None leaves it to the SDK, which asks the environment.
    return None if ratio is None else ParentBasedTraceIdRatio(ratio)


def _processor(traces: str, endpoint: str | None, headers: Mapping[str, str] | None) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    from gaia.telemetry.exporters import JsonLinesExporter, readable_line

    if traces == "console":
        # Standard output belongs to results and to protocols.
        return SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr, formatter=readable_line))
    if traces == "otlp":
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise ConfigError(f"the OTLP exporter is missing; {_EXTRA}") from error
        return BatchSpanProcessor(OTLPSpanExporter(_signal(endpoint, "traces"), headers=_plain(headers)))
    if not traces.endswith(".jsonl"):
        raise ConfigError(f'traces: must be "console", "otlp" or a path that ends in .jsonl, not {traces!r}')
    try:
        return SimpleSpanProcessor(JsonLinesExporter(Path(traces).expanduser()))
    except OSError as error:
        raise ConfigError(f"spans cannot be written to {traces}: {error.strerror}") from error


def _otlp_reader(endpoint: str | None, headers: Mapping[str, str] | None) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter(_signal(endpoint, "metrics"), headers=_plain(headers)))


def _prometheus_reader(port: int) -> MetricReader:
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import start_http_server
    except ImportError as error:
        raise ConfigError(f"the Prometheus exporter is missing; {_EXTRA}") from error
    try:
        start_http_server(port, "127.0.0.1")
    except OSError as error:
        raise ConfigError(f"metrics cannot be served on port {port}: {error.strerror}") from error
    return PrometheusMetricReader()


def _signal(endpoint: str | None, signal: str) -> str | None:
    """The URL of one signal, as the exporters make it of the general endpoint of the environment."""
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


def _plain(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if headers is None else dict(headers)


def _set_tracers(processor: SpanProcessor, resource: Resource, sampler: Sampler | None) -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(sampler=sampler, resource=resource)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return provider


def _set_meters(readers: list[MetricReader], resource: Resource) -> MeterProvider:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider

    provider = MeterProvider(readers, resource)
    metrics.set_meter_provider(provider)
    return provider
