"""An OpenTelemetry backend for tests: takes OTLP over HTTP on loopback, and keeps what came."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpReceiver:
    """What was exported, decoded. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns everything below."""
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.endpoint = ""

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> bool:
        with self._lock:
            self.headers.append(headers)
            if path == "/v1/traces":
                self._traces.append(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self._metrics.append(ExportMetricsServiceRequest.FromString(body))
            else:
                return False
        return True

    @property
    def spans(self) -> list[Any]:
        with self._lock:
            resources = [resource for request in self._traces for resource in request.resource_spans]
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]

    @property
    def services(self) -> set[str]:
        with self._lock:
            resources = [resource.resource for request in self._traces for resource in request.resource_spans]
        return {
            attribute.value.string_value
            for resource in resources
            for attribute in resource.attributes
            if attribute.key == "service.name"
        }

    @property
    def metric_names(self) -> set[str]:
        with self._lock:
            resources = [resource for request in self._metrics for resource in request.resource_metrics]
        return {metric.name for resource in resources for scope in resource.scope_metrics for metric in scope.metrics}


def attributes_of(span: Any) -> dict[str, Any]:
    """Its attributes as Python values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """One that listens at `endpoint` until the end of the block."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            known = receiver.take(self.path, body, {key.lower(): value for key, value in self.headers.items()})
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
