"""Sets up the OpenTelemetry SDK for applications that do not do it themselves. The library never does."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gaia.mcp.errors import ConfigError
from gaia.runtime.extras import install_command
from gaia.telemetry import content, spans
from gaia.telemetry.content import ContentHook

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    from gaia.telemetry.metrics_page import MetricsPage

_SERVICE: Final = "gaia"


class Telemetry:
    """The telemetry that `configure` has set up. Thread-safe."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None, page: MetricsPage | None) -> None:
        self._providers = [provider for provider in (tracers, meters) if provider is not None]
        self._page = page

    @property
    def prometheus_port(self) -> int | None:
        """The port of the metrics for Prometheus; None if they are not served."""
        return None if self._page is None else self._page.server_port

    def flush(self, timeout: float = 10.0) -> bool:
        """Export all recorded data; False if that took longer than `timeout` seconds."""
        done = [provider.force_flush(int(timeout * 1000)) for provider in self._providers]
        return all(done)

    def shutdown(self) -> None:
        """Export all recorded data, and stop recording. The exit of the interpreter does this too."""
        for provider in self._providers:
            provider.shutdown()
        if self._page is not None:
            self._page.close()


def configure(
    traces: str | None = None,
    *,
    service_name: str | None = None,
    sample_ratio: float | None = None,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    export_timeout: float | None = None,
    prometheus_port: int | None = None,
    content_hook: ContentHook | None = None,
    reuse_execute_tool_spans: bool = True,
) -> Telemetry:
    """Record traces and metrics of this process. Call it once, before the first call is made.

    `traces` is the destination of spans: ``"console"`` (a tree for each trace, on standard error), ``"otlp"`` (OTLP
    over HTTP, metrics too), or the path of a file that ends in ``.jsonl``. None records no traces. `prometheus_port`
    serves the metrics for Prometheus on 127.0.0.1, at ``/metrics``; 0 is any free port.

    `service_name`, `sample_ratio` (0 to 1, of the traces that begin here), `endpoint` (``http://localhost:4318``),
    `headers` and `export_timeout` (seconds of one export, attempts included) default to OpenTelemetry's own variables:
    ``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``,
    ``OTEL_EXPORTER_OTLP_TIMEOUT``. For backends that accept no metrics, ``OTEL_METRICS_EXPORTER=none`` turns them off.

    `content_hook` and `reuse_execute_tool_spans`: see `set_content_hook` and the function of that name.

    Raises `ConfigError` for an unusable destination, if the extra ``gaia-mcp[otel]`` is missing, and if the process
    already has a provider.
    """
    if traces is None and prometheus_port is None:
        raise ConfigError('there is nothing to record: give traces="console", "otlp" or a path, or prometheus_port')
    if sample_ratio is not None and not 0 <= sample_ratio <= 1:
        raise ConfigError(f"sample_ratio: must be between 0 and 1, not {sample_ratio!r}")
    if (missing := sdk_missing()) is not None:
        raise ConfigError(missing)
    _require_no_provider(traces=traces is not None, metrics=traces == "otlp" or prometheus_port is not None)
    otlp = _Otlp(endpoint, None if headers is None else dict(headers), export_timeout)
    processor = None if traces is None else _processor(traces, otlp)
    readers: list[MetricReader] = []
    page = None
    if prometheus_port is not None:
        try:
            reader, page = _prometheus(prometheus_port)
        except ConfigError:
            if processor is not None:
                # The processor already has a thread or an open file.
                processor.shutdown()
            raise
        readers.append(reader)
    if traces == "otlp" and os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none":
        readers.append(_otlp_reader(otlp))
    telemetry = Telemetry(*_providers(processor, readers, service_name, sample_ratio), page)
    content.set_content_hook(content_hook)
    spans.reuse_execute_tool_spans(reuse_execute_tool_spans)
    return telemetry


def sdk_missing() -> str | None:
    """A message for users if the OpenTelemetry SDK is missing and nothing can be recorded; None otherwise."""
    return None if importlib.util.find_spec("opentelemetry.sdk") is not None else _missing("the OpenTelemetry SDK")


def _missing(what: str) -> str:
    return f"{what} is not installed (extra 'otel' of gaia-mcp); run: {install_command('otel')}"


def tracer_provider() -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(sampler=ALWAYS_ON)
        trace.set_tracer_provider(provider)
    return provider


def _require_no_provider(*, traces: bool, metrics: bool) -> None:
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import get_tracer_provider

    if (traces and isinstance(get_tracer_provider(), TracerProvider)) or (
        metrics and isinstance(get_meter_provider(), MeterProvider)
    ):
        raise ConfigError(
            "OpenTelemetry is already set up in this process, which it can be only once; "
            "add exporters to the provider that is there instead"
        )


class _Otlp(NamedTuple):
    endpoint: str | None
    headers: dict[str, str] | None
    timeout: float | None

    def options(self, signal: str) -> dict[str, Any]:
        url = None if self.endpoint is None else f"{self.endpoint.rstrip('/')}/v1/{signal}"
        return {"endpoint": url, "headers": self.headers, "timeout": self.timeout}


def _processor(traces: str, otlp: _Otlp) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    from gaia.telemetry.exporters import JsonLinesExporter, TraceTree

    if traces == "console":
        # Standard output is for results and protocols.
        return TraceTree(sys.stderr)
    if traces == "otlp":
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise ConfigError(_missing("the OTLP exporter")) from error
        return BatchSpanProcessor(OTLPSpanExporter(**otlp.options("traces")))
    if not traces.endswith(".jsonl"):
        raise ConfigError(f'traces: must be "console", "otlp" or a path that ends in .jsonl, not {traces!r}')
    try:
        return SimpleSpanProcessor(JsonLinesExporter(Path(traces).expanduser()))
    except OSError as error:
        raise ConfigError(f"spans cannot be written to {traces}: {error.strerror}") from error


def _otlp_reader(otlp: _Otlp) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter(**otlp.options("metrics")))


def _prometheus(port: int) -> tuple[MetricReader, MetricsPage]:
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader

        from gaia.telemetry.metrics_page import MetricsPage
    except ImportError as error:
        raise ConfigError(_missing("the Prometheus exporter")) from error
    try:
        page = MetricsPage(port)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served on port {port}: {error.strerror}") from error
    return PrometheusMetricReader(), page


def _providers(
    processor: SpanProcessor | None, readers: list[MetricReader], service_name: str | None, ratio: float | None
) -> tuple[TracerProvider | None, MeterProvider | None]:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    if service_name is None and os.environ.get("OTEL_SERVICE_NAME") is None:
        service_name = _SERVICE
    resource = Resource.create({} if service_name is None else {SERVICE_NAME: service_name})
    tracers = meters = None
    if processor is not None:
        # Without a sampler the SDK reads the environment.
        tracers = TracerProvider(None if ratio is None else ParentBasedTraceIdRatio(ratio), resource)
        tracers.add_span_processor(processor)
        trace.set_tracer_provider(tracers)
    if readers:
        meters = MeterProvider(readers, resource)
        metrics.set_meter_provider(meters)
    return tracers, meters
