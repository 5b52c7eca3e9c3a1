"""Calls of every kind, and what spans and metrics record of them, without what differs from run to run.

`test_recorded_spans.py` compares it with `recorded_spans.json`. Where the recorded content is meant to change, write
the file anew, and read the difference before it is committed::

    python -m tests.telemetry.recorded_calls > tests/telemetry/recorded_spans.json
"""

import datetime as dt
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Setter, TextMapPropagator, default_setter
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gaia.mcp.client import MCPClient
from gaia.mcp.transports.base import MCPTransport
from gaia.telemetry import content, spans
from gaia.telemetry.content import CAPTURE_VARIABLE, Recorded
from tests.servers import fault_server, feature_server
from tests.servers.answers import received
from tests.servers.http_server import MODERN, Exchange, ScriptedServer
from tests.tracing import Metering, Tracing
from tests.unspeakable import Unspeakable
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

SECRET = "hunter2-hunter2"
QUOTED_SECRET = 'hun"ter\\three\tthree'
LINES_SECRET = "first-line-of-it\nsecond-line-of-it"
ENVIRONMENT = {"SOME_TOKEN": SECRET, "QUOTED_KEY": QUOTED_SECRET, "LINES_KEY": LINES_SECRET, "PLAIN": "x"}
BASE64 = "iVBORw0KGgoA" * 20
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nMIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4\n-----END PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"

VALUES: dict[str, Any] = {
    "a text": "hi",
    "an empty text": "",
    "lines": "first\nsecond\r\n\tthird",
    "quotes": 'she said "yes", and \\ no',
    "control characters": "\x00\x01\x1f\x7f\b\f",
    "unicode": "Zürich 東京 🦔 e\u0301 \u2028 \ufeff",
    "a secret": SECRET,
    "a secret in a text": f"before {SECRET} after",
    "a secret with quotes": f"it is {QUOTED_SECRET}!",
    "a line of a secret": "there is second-line-of-it here",
    "a secret percent-encoded": "hun%22ter%5Cthree%09three",
    "half a secret": "hunter2-hunt",
    "a bearer": "Authorization: Bearer abcdefgh12345678",
    "a bearer after a line end": "headers\nBearer abcdefgh12345678",
    "words of secrets": "the secret of a password is its session token; the author has an api key",
    "an assignment": "DB_PASSWORD=hunter3 next",
    "an assignment with quotes": 'export api_key="hunter 3"; x',
    "json in a text": json.dumps({"clientSecret": "hunter 3", "a": [1, 2]}),
    "harmless json in a text": json.dumps({"name": "Ada", "a": [1, 2]}),
    "a web token": f"x {JWT} y",
    "a private key": f"key:\n{PRIVATE_KEY}\nend",
    "half a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB",
    "keys of providers": "sk-abcdefghijklmnopqrst ghp_abcdefghijklmnopqrstuvwx AKIAABCDEFGHIJKLMNOP xoxb-1234567890ab",
    "what looks like keys of providers": "task-force ghost risk_management through task_identifier AKIA AIza xox",
    "a url": "see https://example.com/a/b?c=d#e",
    "a url with a password": "see https://ada:lovelace@example.com/x",
    "base64 in a text": BASE64,
    "1000 characters": "abcdefghi " * 100,
    "4000 characters": "abcdefghi " * 400,
    "4000 characters of commas": "a,:" * 1300,
    "4090 characters": "x" * 4090,
    "4096 characters": "x" * 4096,
    "10,000 characters": "abcdefghi " * 1000,
    "20,000 characters": "abcdefghi " * 2000,
    "a secret across the cut": "x" * 4090 + SECRET,
    "a secret across the search": "x" * (16 * 1024 - 5) + SECRET,
    "2000 characters of more than a byte": "東" * 2000,
    "a number": 7,
    "numbers": [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1],
    "long numbers": [2**64, -(2**63) - 1, 10**40],
    "floats": [0.5, -0.0, 1e15, 1e16, 1e22, 1.5e-7, 5e-324, 1.7976931348623157e308, 0.1 + 0.2],
    "truths": [True, False, None],
    "nothing": None,
    "an empty list": [],
    "an empty object": {},
    "nested": {"a": [{"b": [[], {}, [1, ["two", {"three": 3}]]]}]},
    "nested deeply": None,
    "a secret key": {"password": "abc", "apiKey": "abc", "api-key": 1, "sessionToken": None, "auth": ["abc"]},
    "a secret key that is none": {"max_tokens": 100, "author": "Ada", "authors": ["Ada"], "authority": "x"},
    "a secret key below": {"deep": [{"Authorization": {"scheme": "Basic", "value": "abc"}}]},
    "a secret as a key": {SECRET: 1, f"x{SECRET}y": {"z": 1}},
    "a long key": {"k" * 59 + "author": "Ada", "k" * 60 + "author": "Ada", "k" * 80 + "token": "abc"},
    "a key with quotes": {'a"b': 1, "c\\d": 2, "api\nkey": "abc", 'api"key': "abc"},
    "foreign letters in a key": {"\u017fecret": "abc", "toKen": "abc", "sess\u0131on": "abc", "PASSWÖRD": "abc"},
    "binary data": {"data": BASE64, "blob": BASE64, "other": BASE64},
    "short binary data": {"data": "aGVsbG8=", "blob": 5},
    "data that is none": {"data": "this is a text of more than sixty-four characters, and it is not binary data"},
    "many members": {str(number): number for number in range(600)},
    "many items": ["x"] * 2000,
    "many short texts": [str(number) for number in range(480)],
    "many numbers": list(range(480)),
    "many numbers, more": list(range(1000)),
}

deep: Any = []
for _ in range(100):
    deep = [deep]
VALUES["nested deeply"] = deep

RESULTS: dict[str, Any] = {
    "two blocks": {"content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "ho"}], "isError": False},
    "an error of the tool": {"content": [{"type": "text", "text": f"no such file: {SECRET}"}], "isError": True},
    "structured": {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"temperature": 21.5, "n": None}},
    "a picture": {"content": [{"type": "image", "data": BASE64, "mimeType": "image/png"}]},
    "a resource": {
        "content": [
            {"type": "resource", "resource": {"uri": f"db://{SECRET}@host/x", "blob": BASE64, "mimeType": "a/b"}},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "audio", "data": "short", "mimeType": "audio/wav"},
        ]
    },
    "meta": {"content": [], "_meta": {"token": "abc", "x": 1}},
    "content that is none": {"content": "words"},
    "blocks that are none": {"content": [5, None, "x", {"type": ["list"]}, {"text": "no type"}]},
    "is_error that is none": {"content": [], "isError": "yes"},
    "nothing": {},
}

NOT_JSON: dict[str, Any] = {
    "not a number": math.nan,
    "infinity": -math.inf,
    "an object": Unspeakable,
    "a date": dt.date(2026, 1, 2),
    "a set": {"a"},
    "bytes": b"abc",
    "a surrogate": "\ud800",
    "a surrogate in a key": {"\ud800": ["\udfff"]},
    "keys that are no texts": {1: "a", 1.5: "b", 1e22: "c"},
    "keys that are truths": {True: "a", None: "b"},
    "a tuple": ("a", (1, SECRET)),
    "a subclass": type("Text", (str,), {})("words"),
    "a mapping": type("Object", (dict,), {})({"a": SECRET}),
}


class Recording:
    """What calls have exported, step by step."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch = patch
        self.folder = folder
        self.recorded: dict[str, Any] = {}

    def fault(self, **scenario: Any) -> Json:
        text = json.dumps(scenario, default=os.fspath)
        return {"command": sys.executable, "args": ["-I", "-S", str(fault_server.__file__), text]}

    @contextmanager
    def client(self, config: Json, name: str = "fault", **keys: Any) -> Iterator[MCPClient]:
        client = MCPClient.from_config(name, {**config, **keys})
        assert client.connect(), client.last_error
        try:
            yield client
        finally:
            client.disconnect()

    @contextmanager
    def section(self, name: str, provider: TracerProvider | None = None) -> Iterator[Tracing]:
        """The spans of requests that end within it."""
        with self.patch.context() as patch:
            tracing, metering = Tracing.installed(patch, provider), Metering(patch)
            yield tracing
            self.recorded[name] = {"spans": _described(tracing.all), "metrics": _counted(metering)}


def record(patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """Make all calls. Patches what is global with `patch`, and writes into `folder`."""
    recording = Recording(patch, folder)
    patch.delenv(CAPTURE_VARIABLE, raising=False)
    patch.setattr(content, "_hook", None)
    for section in (_content, _modes, _failures, _others, _over_http, _propagation, _reuse, _of_ones_own, _limits):
        section(recording)
    return recording.recorded


def _content(recording: Recording) -> None:
    config = recording.fault(
        faults=[{"tool": "pid", "nth": [number], "result": result} for number, result in enumerate(RESULTS.values(), 1)]
    )
    with recording.section("content") as tracing, recording.client(config, env=ENVIRONMENT) as client:
        for number, value in enumerate(VALUES.values()):
            arguments = {"text": value, "more": number}
            if number % 5:
                client.call_tool("echo", arguments)
            else:
                _ended(tracing, lambda: client.submit_tool("echo", arguments).result(PATIENCE))  # noqa: B023
        for _ in RESULTS:
            client.call_tool("pid", {})
        for value in NOT_JSON.values():
            try:
                client.call_tool("echo", {"text": value})
            except ValueError:
                continue


def _modes(recording: Recording) -> None:
    values = [VALUES[name] for name in ("a text", "a secret", "20,000 characters", "unicode", "floats", "long numbers")]
    for mode in ("off", "full", "redacted"):
        keys = {"captureContent": mode, "captureContentTools": {"child*": "off", "start": "full"}}
        with (
            recording.section(f"mode {mode}"),
            recording.client(recording.fault(), env=ENVIRONMENT, **keys) as client,
        ):
            for value in values:
                client.call_tool("echo", {"text": value})
            client.call_tool("children", {"secret": "abc"})
            client.call_tool("start", {"secret": "abc"})
    with recording.section("mode by the environment"), recording.client(recording.fault()) as client:
        for variable in ("true", "NO_CONTENT", "", "span_only", "whatever"):
            with recording.patch.context() as patch:
                patch.setenv(CAPTURE_VARIABLE, variable)
                client.call_tool("echo", {"text": "hi", "password": "abc"})

    def hook(recorded: Recorded) -> str | None:
        text = f"{recorded.server} {recorded.tool} {recorded.kind} {recorded.mode} {sorted(recorded.value)}"
        return text if recorded.kind == "arguments" else None

    with recording.section("content hook"), recording.client(recording.fault()) as client:
        with recording.patch.context() as patch:
            patch.setattr(content, "_hook", hook)
            client.call_tool("echo", {"text": "hi"})
        client.call_tool("echo", {"text": "hi"})


def _failures(recording: Recording) -> None:
    config = recording.fault(
        faults=[
            {"tool": "echo", "nth": [1], "error": {"code": -32602, "message": f"no {SECRET}", "data": {"a": 1}}},
            {"tool": "echo", "nth": [2], "error": {"code": -32603, "message": ""}},
            {"tool": "echo", "nth": [3], "error": {"code": "x"}},
            {"tool": "echo", "nth": [4], "result": ["no object"]},
            {"tool": "echo", "nth": [5], "progress": [{"progress": 1, "total": 3, "message": "x"}, {"progress": 2.5}]},
            {"tool": "sleep", "progress": [{"progress": 1}], "await_cancel": True},
        ]
    )
    keys = {"env": ENVIRONMENT, "disabledTools": ["start"]}
    with recording.section("failures") as tracing, recording.client(config, **keys) as client:
        for _ in range(4):
            client.call_tool("echo", {"text": "hi"})
        client.call_tool("echo", {"text": "hi"}, on_progress=lambda *_: None)
        client.call_tool("start", {})
        started: list[float] = []
        future = client.submit_tool("sleep", {"seconds": 1}, on_progress=lambda progress, *_: started.append(progress))
        assert wait_until(lambda: bool(started))
        _ended(tracing, future.cancel)
        tracing.wait_for("notifications/cancelled")
    config = recording.fault(faults=[{"tool": "echo", "await_cancel": True}])
    with recording.section("timeout") as tracing, recording.client(config) as client:
        client.call_tool("echo", {"text": "hi"}, timeout=0.05)
        tracing.wait_for("notifications/cancelled")
    crash = recording.fault(faults=[{"tool": "echo", "crash": "before_answer", "exit_code": 3}])
    with recording.section("crash") as tracing, recording.client(crash, restart={"enabled": False}) as client:
        client.call_tool("echo", {"text": "hi"})
    repeated = recording.fault(
        faults=[{"tool": "pid", "crash": "before_answer"}],
        by_start={"2": {"faults": [{"tool": "pid", "result": {"content": []}}]}},
        state_file=str(recording.folder / "state"),
    )
    with (
        recording.section("repeated") as tracing,
        recording.client(repeated, restart={"initialDelay": 0.05}) as client,
    ):
        client.call_tool("pid", {"password": "abc"}, timeout=PATIENCE)
    with recording.section("not there"):
        client = MCPClient.from_config("fault", {"command": "no-such-program-anywhere"})
        for connects in (False, True):
            if connects:
                client.connect()
            try:
                client.call_tool("echo", {"text": "hi", "password": "abc"})
            except RuntimeError:
                continue
        client.disconnect()


def _others(recording: Recording) -> None:
    source = Path(spans.__file__).parents[2]
    config = {"command": sys.executable, "args": ["-P", str(feature_server.__file__)]}
    with (
        recording.section("prompts and resources"),
        recording.client(config, "demo", env={"PYTHONPATH": str(source), **ENVIRONMENT}) as client,
    ):
        client.request("logging/setLevel", {"level": "info"})
        for uri in [one["uri"] for one in client.list_resources()] + [f"demo://{SECRET}"]:
            try:
                client.read_resource(uri)
            except RuntimeError:
                continue
        prompt = client.list_prompts()[0]["name"]
        for arguments in ({"name": "Ada"}, {"name": SECRET, "language": "danish"}, {"password": "abc"}, {}):
            try:
                client.get_prompt(prompt, arguments)
            except RuntimeError:
                continue
        client.complete({"type": "ref/prompt", "name": prompt}, {"name": "name", "value": ""})
        for tool in ("echo", "fail", "environment"):
            client.call_tool(tool, {"text": "hi"})


def _over_http(recording: Recording) -> None:
    for in_streams in (False, True):
        scripted = ScriptedServer(answer_in_streams=in_streams)
        name = "http, event streams" if in_streams else "http"
        with recording.section(name), scripted.serving():
            config = {"url": scripted.url, "headers": {"Authorization": f"Bearer {SECRET}"}}
            with recording.client(config, "web") as client:
                for value in ("hi", f"it is {SECRET}", 'lines\nand "quotes"', "x" * 10_000):
                    client.call_tool("echo", {"text": value})
                client.submit_tool("read", {"text": "hi"}).result(PATIENCE)
    states = iter(({"resultType": "input_required", "requestState": "one"}, {"content": [], "resultType": "complete"}))

    def answer(exchange: Exchange) -> None:
        exchange.json(exchange.answer(next(states)))

    scripted = ScriptedServer(era=MODERN, on={"tools/call": answer})
    with (
        recording.section("round trips"),
        scripted.serving(),
        recording.client({"url": scripted.url}, "web") as client,
    ):
        client.call_tool("echo", {"text": "hi"})


class Uppercase(TextMapPropagator):
    """An application's own."""

    def inject(self, carrier: Any, context: Context | None = None, setter: Setter[Any] = default_setter) -> None:
        found = trace.get_current_span(context).get_span_context()
        setter.set(carrier, "X-SAMPLED", str(found.trace_flags.sampled))

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        return Context() if context is None else context

    @property
    def fields(self) -> set[str]:
        return {"X-SAMPLED"}


class Broken(Uppercase):
    def inject(self, carrier: Any, context: Context | None = None, setter: Setter[Any] = default_setter) -> None:
        raise ZeroDivisionError


PROPAGATORS: dict[str, Callable[[], TextMapPropagator | None]] = {
    "as configured": lambda: None,
    "standard": lambda: CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()]),
    "trace context alone": TraceContextTextMapPropagator,
    "baggage alone": lambda: CompositePropagator([W3CBaggagePropagator()]),
    "own": lambda: CompositePropagator([TraceContextTextMapPropagator(), Uppercase()]),
    "broken": Broken,
    "none": lambda: CompositePropagator([]),
}


def _propagation(recording: Recording) -> None:
    here = trace.SpanContext(
        0xAB,
        0xCD,
        is_remote=True,
        trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("rojo", "00f067aa0ba902b7"), ("congo", "t61rcWkgMzE")]),
    )
    parent = trace.set_span_in_context(trace.NonRecordingSpan(here), Context())
    contexts = {
        "no parent": Context(),
        "tracestate": parent,
        "baggage": baggage.set_baggage("tenant", "blue & green", baggage.set_baggage("user", 7, parent)),
        "something else": context.set_value("anything", 1, Context()),
    }
    for provider, sampled in (
        (TracerProvider(), "sampled"),
        (TracerProvider(sampler=ALWAYS_OFF), "not sampled"),
        (None, "no tracer"),
    ):
        name = f"propagation, {sampled}"
        with recording.section(name, provider) as tracing, recording.patch.context() as patch:
            if provider is None:
                patch.setattr(spans, "_tracer", trace.get_tracer("gaia.mcp"))
            with recording.client(recording.fault()) as client:
                made = []
                for propagator, make in PROPAGATORS.items():
                    if (chosen := make()) is not None:
                        patch.setattr(propagate, "_HTTP_TEXT_FORMAT", chosen)
                    for kind, where in contexts.items():
                        token = context.attach(where)
                        try:
                            client.call_tool("echo", {"text": f"{propagator}, {kind}"})
                        finally:
                            context.detach(token)
                        made.append(f"{propagator}, {kind}")
                sent = [one["params"] for one in received(client) if one.get("method") == "tools/call"]
            metas = [_without_ids(params.get("_meta"), tracing.all) for params in sent]
        recording.recorded[name]["sent"] = dict(zip(made, metas, strict=False))


def _reuse(recording: Recording) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo", "own": [1, 2]}
    with recording.section("execute_tool") as tracing, recording.client(recording.fault()) as client:
        tracer = tracing.provider.get_tracer("framework")
        with tracer.start_as_current_span("execute_tool echo", attributes=attributes):
            client.call_tool("echo", {"text": "hi", "password": "abc"})
            client.call_tool("echo", {"text": "again"})
        with tracer.start_as_current_span("execute_tool echo", attributes=attributes):
            client.call_tool("children", {})
        outer = tracer.start_span("execute_tool echo", attributes=attributes)
        with trace.use_span(outer):
            future = client.submit_tool("echo", {"text": "hi"}, on_progress=lambda *_: None)
        future.result(PATIENCE)
        client.call_tool("children", {})
        outer.end()
    # The outer span has ended before the call has.
    config = recording.fault(faults=[{"tool": "echo", "await_cancel": True}])
    with recording.section("execute_tool that ended first") as tracing, recording.client(config) as client:
        tracer = tracing.provider.get_tracer("framework")
        with tracer.start_as_current_span("execute_tool echo", attributes=attributes):
            future = client.submit_tool("echo", {"text": "hi"})
        future.cancel()


class OwnTransport(MCPTransport):
    """An application's own."""

    def connect(self) -> bool:
        return True

    def disconnect(self) -> None: ...

    def is_connected(self) -> bool:
        return True

    def send_request(self, method: str, params: Json | None = None) -> Json:
        if method == "initialize":
            return {"result": {"protocolVersion": "2025-06-18"}}
        changed = (params or {}).get("arguments", {})
        changed["added"] = "by the transport"
        return {"result": {"content": ({"type": "text", "text": SECRET},), "when": dt.date(2026, 1, 2)}}


def _of_ones_own(recording: Recording) -> None:
    with recording.section("own transport"), MCPClient("own", OwnTransport()) as client:
        client.call_tool("echo", {"text": "hi"})
        client.submit_tool("echo", {"text": "hi", "password": "abc"}).result(PATIENCE)


def _limits(recording: Recording) -> None:
    for count, length in ((4, None), (None, 20), (12, 20)):
        provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=count, max_span_attribute_length=length))
        name = f"limits of {count} attributes and {length} characters"
        with recording.section(name, provider), recording.client(recording.fault()) as client:
            client.call_tool("echo", {"text": "a text that is longer than the limit"})
            client.call_tool("echo", {"text": "hi"}, on_progress=lambda *_: None)


# What is exported, and the same in each run.


def _without_ids(meta: Any, exported: list[ReadableSpan]) -> Any:
    """``_meta`` with the names of spans instead of their ids; other ids that begin with a zero are the test's own."""
    text = json.dumps(meta)
    for span in exported:
        if span.context is not None:
            text = text.replace(f"-{span.context.span_id:016x}-", f"-{span.name}-")
    # The second flag says that the trace's id is random, which not every version of the SDK does.
    text = re.sub(r'-0([0-3])(?=")', lambda match: f"-0{int(match[1]) & 1}", text)
    return json.loads(re.sub(r"00-(?!000)[0-9a-f]{32}|(?<=-)(?!000)[0-9a-f]{16}(?=-)", "…", text))


_LONG, _KEPT = 400, 60
"""Characters. Of longer texts the file has the two ends and a hash."""

_UNSTEADY = {"gaia.mcp.process.pid", "gaia.mcp.uptime", "server.port", "gaia.mcp.backoff.delay"}


def _steady(key: str, value: Any) -> Any:
    if key in _UNSTEADY:
        return "…"
    if isinstance(value, str):
        value = re.sub(r"0x[0-9a-f]{6,}", "0x…", value)
        value = re.sub(r"PATH \(.*?\)", "PATH (…)", value)
        # What follows is said by Python, in the words of its version.
        value = re.sub(r"(cannot be sent as JSON: ).*", r"\1…", value)
        if len(value) > _LONG:
            return [len(value), hashlib.sha256(value.encode()).hexdigest(), value[:_KEPT], value[-_KEPT:]]
    return value


def _pairs(attributes: Mapping[str, Any] | None) -> list[list[Any]]:
    """In the order in which exporters see them."""
    return [[key, _steady(key, value)] for key, value in (attributes or {}).items()]


def _described(exported: list[ReadableSpan]) -> list[Json]:
    """Spans of requests, those of one name in the order in which they began."""
    names = {span.context.span_id: span.name for span in exported if span.context is not None}
    described = []
    for span in exported:
        if span.name.startswith("gaia.mcp.") or span.name in ("tools/call received", "ping"):
            continue
        one: Json = {
            "name": span.name,
            "kind": span.kind.name,
            "attributes": _pairs(span.attributes),
            "status": [span.status.status_code.name, _steady("", span.status.description)],
        }
        if span.parent is not None:
            one["parent"] = names.get(span.parent.span_id, "remote")
        if span.events:
            one["events"] = [[event.name, _pairs(event.attributes)] for event in span.events]
        if span.links:
            one["links"] = [names.get(link.context.span_id) for link in span.links]
        if span.dropped_attributes:
            one["dropped"] = span.dropped_attributes
        described.append(one)
    return sorted(described, key=lambda one: str(one["name"]))


def _counted(metering: Metering) -> list[Json]:
    names = ("mcp.client.operation.duration", "mcp.client.session.duration", "gaia.mcp.client.calls.refused")
    points = [
        {
            "metric": name,
            "attributes": {key: _steady(key, value) for key, value in sorted((point.attributes or {}).items())},
            "count": getattr(point, "count", None) or point.value,
        }
        for name in names
        for point in metering.points(name)
        # A call that was not answered in time is followed by a ping, sooner or later.
        if point.attributes.get("mcp.method.name") != "ping"
    ]
    return sorted(points, key=lambda one: json.dumps(one, default=str))


def _ended(tracing: Tracing, act: Callable[[], object]) -> None:
    """Wait until the span of a submitted call has ended, so that the next one begins later."""
    count = len(tracing.calls)
    act()
    assert wait_until(lambda: len(tracing.calls) > count)


def as_text(recorded: dict[str, Any]) -> str:
    """As it is in the file: a line for each span and each point, so that differences can be read."""
    sections = []
    for name, parts in recorded.items():
        lines = {part: [json.dumps(one, default=str) for one in _items(found)] for part, found in parts.items()}
        body = ",\n".join(
            f"  {json.dumps(part)}: [\n   " + ",\n   ".join(found) + "\n  ]" for part, found in lines.items()
        )
        sections.append(f" {json.dumps(name)}: {{\n{body}\n }}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _items(found: Any) -> list[Any]:
    return [list(pair) for pair in found.items()] if isinstance(found, dict) else found


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as outer, tempfile.TemporaryDirectory() as directory:
        sys.stdout.write(as_text(record(outer, Path(directory))))
