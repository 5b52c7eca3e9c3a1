"""`gaia mcp demo`: the first thing that a new user sees."""

import contextlib
import itertools
import json
import sys
from pathlib import Path

import psutil
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from gaia.cli import bench, demo, demo_ray
from gaia.cli.bench import raw_pipe
from gaia.cli.rendering import Step
from tests.unit.cli.fixture_types import Invoke, Json, Told

pytestmark = pytest.mark.slow

STEPS = [
    "start",
    "list",
    "overhead",
    "call_add",
    "call_echo",
    "call_sleep",
    "crash",
    "restart",
    "overhead_traced",
    "stop",
]


def test_the_demo_shows_everything_and_leaves_nothing(run: Invoke, home: Path, tmp_path: Path) -> None:
    result = run("demo", "--json")
    document = json.loads(result.stdout)
    steps = {step["name"]: step for step in document["steps"]}

    assert (result.returncode, result.stderr) == (0, "")
    assert document["ok"] is True
    assert document["seconds"] < 15
    assert list(steps) == STEPS

    assert {"add", "echo", "sleep", "crash"} <= set(steps["list"]["tools"])
    assert steps["call_add"]["result"]["structuredContent"] == {"sum": 5}
    assert steps["call_sleep"]["progress"][-1] == 0.3

    crash = steps["crash"]["result"]
    assert (crash["error_type"], crash["delivery"]) == ("server_crashed", "unknown")
    assert (steps["restart"]["generation"], steps["restart"]["restarts"]) == (2, 1)
    assert steps["restart"]["pid"] != steps["start"]["pid"]
    assert steps["restart"]["downtime"] > 0

    for name, tool in (("call_add", "add"), ("call_echo", "echo"), ("crash", "crash"), ("restart", "echo")):
        (span,) = steps[name]["spans"]
        assert (span["name"], span["kind"]) == (f"tools/call {tool}", "CLIENT")
        assert span["attributes"]["gen_ai.tool.name"] == tool
    assert steps["crash"]["spans"][0]["attributes"]["error.type"] == "server_crashed"

    for name in ("overhead", "overhead_traced"):
        assert steps[name]["ratio"] == pytest.approx(steps[name]["managed"]["median"] / steps[name]["raw"]["median"])
        assert steps[name]["managed"]["p99"] >= steps[name]["managed"]["median"]

    assert steps["stop"]["left"] == []
    assert {steps["start"]["pid"], steps["restart"]["pid"]} <= set(steps["stop"]["pids"])
    assert not [pid for pid in steps["stop"]["pids"] if psutil.pid_exists(pid)]
    # Neither the user's configuration nor the working directory was touched.
    assert list(home.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_without_the_sdk_of_opentelemetry_it_shows_no_spans_and_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    result = invoke("demo")

    assert result.exit_code == 0
    # Without the overhead of spans, and with a word about their absence.
    assert result.stdout.count("✓") == len(STEPS)
    for words in ("delivery unknown", "generation 2", "downtime", "times the raw pipe", "(extra 'otel' of gaia-mcp)"):
        assert words in " ".join(result.stdout.split())
    assert "span " not in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Everything held")


def test_what_does_not_hold_fails(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setattr(demo, "_tour", lambda: (demo.Step(name, name != "crash", [name], {}) for name in STEPS))
    result = invoke("demo")
    assert result.exit_code == 1
    assert result.stdout.count("✗") == 1
    assert result.stdout.endswith("Not as it should be: crash.\n")


@pytest.mark.process
def test_a_server_that_cannot_be_started_fails(monkeypatch: pytest.MonkeyPatch, invoke_json: Invoke) -> None:
    monkeypatch.setattr(bench, "raw_pipe", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr("gaia.mcp.demo_server.__file__", "/nowhere/demo_server.py")
    document = invoke_json("demo")
    assert document["ok"] is False
    assert [step["name"] for step in document["steps"]] == ["error", "stop"]
    assert "/nowhere/demo_server.py" in document["steps"][0]["error"]


def test_a_raw_pipe_whose_server_is_not_there_leaves_no_process(demo_server: Json) -> None:
    with pytest.raises(RuntimeError, match="has ended"), raw_pipe([demo_server["command"], "-c", ""], "echo", {}):
        raise AssertionError("it cannot be entered")


def test_both_sides_are_measured_equally_often_and_in_turns() -> None:
    order: list[str] = []
    measured = bench.measure(lambda: order.append("raw"), lambda: order.append("managed"))
    assert order.count("raw") == order.count("managed")
    assert [len(calls.latencies) for calls in measured] == [1000, 1000]
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes >= 2 * 20 - 1


def test_tool_calls_are_taken_once_in_the_order_in_which_they_ended() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("tools/call add", attributes={"gen_ai.tool.name": "add"}) as span:
        tracer.start_span("tools/call echo").end()
        tracer.start_span("tools/list").end()
        span.set_status(StatusCode.ERROR)
    echo, add = demo.take_calls(spans)

    assert (echo["name"], add["name"]) == ("tools/call echo", "tools/call add")
    assert (add["kind"], add["status"], add["attributes"]) == ("INTERNAL", "ERROR", {"gen_ai.tool.name": "add"})
    assert isinstance(echo["seconds"], float)
    assert 0 <= echo["seconds"] < 10
    about, attributes = demo._span_lines([add])
    assert about.startswith("span tools/call add, INTERNAL, ")
    assert attributes == "span attributes gen_ai.tool.name=add"
    assert demo.take_calls(spans) == []


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, refused: Told) -> None:
    monkeypatch.setattr(
        "gaia.runtime.extras.missing", lambda *_: "ray, which is not installed (extra 'ray' of gaia-mcp)"
    )
    assert "extra 'ray' of gaia-mcp" in refused("demo", "--ray")


def test_what_takes_time_is_announced_to_people(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    tour = ["Starting …", Step("cluster", True, ["Start"], {}), Step("stop", False, ["Stop"], {})]
    monkeypatch.setattr("gaia.runtime.extras.missing", lambda *_: None)
    monkeypatch.setattr(demo_ray, "cluster_tour", lambda: (one for one in tour))
    shown = invoke("demo", "--ray")
    assert (shown.exit_code, shown.stdout.splitlines()) == (
        1,
        ["Starting …", "✓ Start", "✗ Stop", "Not as it should be: stop."],
    )
    assert "Starting" not in invoke("demo", "--ray", "--json").stdout
