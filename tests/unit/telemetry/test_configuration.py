"""Setting the SDK up: in processes of their own, because a process can do it once."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from gaia import telemetry
from gaia.mcp.errors import ConfigError
from gaia.runtime.extras import install_command
from gaia.telemetry.configuration import tracer_provider
from tests.otlp_receiver import attributes_of, otlp_receiver
from tests.waiting import PATIENCE

Json = dict[str, Any]

CALL = """
import json, sys, urllib.request
from gaia import telemetry
from gaia.mcp import MCPClient

def call(tool="echo"):
    with MCPClient.from_config("demo", json.loads(sys.argv[1])) as client:
        return client.call_tool(tool, {"text": "hi"} if tool == "echo" else {})
"""


def run(script: str, server: Json, **environment: str) -> subprocess.CompletedProcess[str]:
    program = CALL + textwrap.dedent(script)
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(server)],
        capture_output=True,
        text=True,
        env=variables,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done


class TestOtlp:
    def test_a_backend_gets_spans_and_metrics(self, demo_server: Json) -> None:
        with otlp_receiver() as receiver:
            run(
                f"""
                traces = telemetry.configure(
                    "otlp", endpoint={receiver.endpoint!r}, service_name="shop", headers={{"x-api-key": "k"}}
                )
                call()
                assert traces.flush()
                """,
                demo_server,
            )
            (span,) = [span for span in receiver.spans if span.name == "tools/call echo"]
            assert attributes_of(span)["gen_ai.tool.name"] == "echo"
            assert span.kind == span.SPAN_KIND_CLIENT
            assert {one.name for one in receiver.spans} >= {"gaia.mcp.start demo", "initialize", "gaia.mcp.close demo"}
            assert receiver.services == {"shop"}
            assert receiver.metric_names >= {"mcp.client.operation.duration", "mcp.client.session.duration"}
            assert all(headers["x-api-key"] == "k" for headers in receiver.headers)

    def test_the_variables_of_opentelemetry_are_honoured(self, demo_server: Json) -> None:
        with otlp_receiver() as receiver:
            run(
                'telemetry.configure("otlp"); call()',
                demo_server,
                OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
                OTEL_SERVICE_NAME="from-the-environment",
                OTEL_METRICS_EXPORTER="none",
            )
            # Nothing flushed it: the end of the process does.
            assert "tools/call echo" in {span.name for span in receiver.spans}
            assert receiver.services == {"from-the-environment"}
            assert receiver.metric_names == set()

    def test_the_command_line_sends_there_too(self, demo_server: Json, tmp_path: Path) -> None:
        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"demo": demo_server}}))
        with otlp_receiver() as receiver:
            command = [sys.executable, "-m", "gaia.cli.main", "mcp", "call", "demo", "echo", "text=hi"]
            done = subprocess.run(
                [*command, "--config", str(config), "--trace", "otlp"],
                capture_output=True,
                text=True,
                env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint},
                timeout=PATIENCE,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")
            assert "tools/call echo" in {span.name for span in receiver.spans}


class TestFile:
    def test_each_span_is_one_line_of_json(self, demo_server: Json, tmp_path: Path) -> None:
        file = tmp_path / "spans.jsonl"
        for _ in range(2):
            run(f"telemetry.configure({str(file)!r}); call()", demo_server)
        spans = [json.loads(line) for line in file.read_text().splitlines()]
        calls = [span for span in spans if span["name"] == "tools/call echo"]
        assert len(calls) == 2
        assert calls[0]["attributes"]["gen_ai.tool.name"] == "echo"
        assert calls[0]["resource"]["attributes"]["service.name"] == "gaia"
        assert len({span["context"]["span_id"] for span in spans}) == len(spans)
        if os.name != "nt":
            assert file.stat().st_mode & 0o777 == 0o600


class TestConsole:
    def test_lines_go_to_standard_error(self, demo_server: Json) -> None:
        done = run('telemetry.configure("console"); print(call("fail")["isError"])', demo_server)
        assert done.stdout == "True\n"
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("span tools/call")]
        assert line.startswith("span tools/call fail CLIENT ")
        assert "ERROR the tool reported an error" in line
        assert "error.type='tool_error'" in line


class TestSampling:
    def test_a_ratio_of_nothing_records_nothing_and_still_tells_the_server(self, demo_server: Json) -> None:
        done = run(
            """
            telemetry.configure("console", sample_ratio=0.0)
            from gaia.telemetry.spans import start_client_span
            print(start_client_span("x", {}).inject({})["_meta"]["traceparent"][-2:])
            call()
            """,
            demo_server,
        )
        flags = int(done.stdout, 16)
        assert flags & 1 == 0
        assert "span " not in done.stderr


class TestPrometheus:
    def test_metrics_are_served(self, demo_server: Json) -> None:
        done = run(
            """
            set_up = telemetry.configure(prometheus_port=0)
            call()
            print(urllib.request.urlopen(f"http://127.0.0.1:{set_up.prometheus_port}/metrics").read().decode())
            set_up.shutdown()
            """,
            demo_server,
        )
        assert "mcp_client_operation_duration_seconds_bucket{" in done.stdout
        (count,) = [
            line
            for line in done.stdout.splitlines()
            if line.startswith("mcp_client_operation_duration_seconds_count") and 'gen_ai_tool_name="echo"' in line
        ]
        assert count.endswith(" 1.0")


class TestMistakes:
    """Each says what is wrong and what to do, and nothing has been set up."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "nothing to record"),
            ({"traces": "jaeger"}, 'must be "console", "otlp" or a path that ends in .jsonl'),
            ({"traces": "no/such/folder/spans.jsonl"}, "cannot be written"),
            ({"traces": "console", "sample_ratio": 2}, "between 0 and 1"),
        ],
    )
    def test_what_cannot_be_meant(self, arguments: Json, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            telemetry.configure(**arguments)

    def test_what_cannot_be_set_up_here(self, demo_server: Json) -> None:
        done = run(
            """
            import psutil, socket

            def fails(*destination, **options):
                try:
                    telemetry.configure(*destination, **options)
                except ValueError as error:
                    print(error)

            with socket.create_server(("127.0.0.1", 0)) as taken:
                fails(prometheus_port=taken.getsockname()[1])
                fails("spans.jsonl", prometheus_port=taken.getsockname()[1])
            print([file.path for file in psutil.Process().open_files() if file.path.endswith(".jsonl")])
            exporters = {name: sys.modules.pop(name) for name in list(sys.modules) if "opentelemetry.exporter" in name}
            sys.modules["opentelemetry.exporter"] = None
            fails("otlp")
            fails(prometheus_port=0)
            telemetry.configure("console")
            fails("console")
            """,
            demo_server,
        )
        taken, also_taken, left_open, no_otlp, no_prometheus, again = done.stdout.splitlines()
        assert "cannot be served on port" in taken
        assert "cannot be served on port" in also_taken
        assert left_open == "[]"
        assert install_command("otel") in no_otlp
        assert install_command("otel") in no_prometheus
        assert "already set up" in again


class TestImport:
    def test_without_the_sdk_the_error_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # As if it were not installed.
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
        message = r"the OpenTelemetry SDK is not installed \(extra 'otel' of gaia-mcp\); run: .*opentelemetry-sdk"
        with pytest.raises(ConfigError, match=message):
            telemetry.configure("console")

    @pytest.mark.process
    def test_it_loads_no_sdk_and_sets_nothing(self) -> None:
        script = (
            "import sys, gaia.telemetry, gaia.mcp.client\n"
            "from opentelemetry import trace, metrics\n"
            "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))],"
            " type(trace.get_tracer_provider()).__name__, type(metrics.get_meter_provider()).__name__)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout.split() == ["[]", "ProxyTracerProvider", "_ProxyMeterProvider"]


class TestTracerProvider:
    def test_a_provider_that_the_application_has_set_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = TracerProvider()
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", own)

        assert tracer_provider() is own

    def test_a_process_that_does_not_trace_does_from_then_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        installed: list[TracerProvider] = []
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(trace, "set_tracer_provider", installed.append)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")

        assert tracer_provider() is installed[0]
        assert installed[0].sampler is ALWAYS_ON
