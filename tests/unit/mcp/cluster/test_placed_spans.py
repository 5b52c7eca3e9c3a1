import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode

from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_spans import PlacedSpans
from gaia.mcp.cluster.wire import StateReached
from gaia.mcp.config.placement import Placement
from gaia.mcp.observation.lifecycle_spans import LossReason
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.supervision.events import Restarted, ServerState
from tests.hosts import LocalEngine
from tests.tracing import Metering, Tracing, attributes_of
from tests.unit.mcp.cluster.conftest import Place, add, link_of
from tests.waiting import PATIENCE, wait_until

OURS = {"gaia.mcp.server.name": "it"}
NODE = "gaia.mcp.placement.node"
EXITED, READY = ServerState.EXITED, ServerState.READY
RESTARTING = ServerState.RESTARTING


def state(new: ServerState, loss: LossReason | None = None, **others: Any) -> StateReached:
    return StateReached(state=new, generation=1, loss=loss, **others)


class Life:
    """Of a server whose hosts tell what the test says."""

    def __init__(self, executor: Callable[[Any], object] = lambda task: task(), **others: Any) -> None:
        self.observer = Observer("it", {"network.transport": "tcp"})
        self.observer.protocol_version = "2025-11-25"
        nothing: Any = None
        context = PlacedContext(
            name="it",
            placement=Placement(),
            engine=nothing,
            settings=nothing,
            start_timeout=60.0,
            timeout=PATIENCE,
            max_pending=1,
            hooks=nothing,
            server_requests=nothing,
            observer=self.observer,
            executor=executor,
        )
        self.spans = PlacedSpans(msgspec.structs.replace(context, **others))

    def start(self) -> PlacedSpans:
        self.spans.requested()
        self.spans.placing()
        self.spans.host_greeted("node-1", 1)
        self.ready()
        return self.spans

    def ready(self, downtime: float | None = None) -> None:
        self.spans.ready(state(READY), downtime)
        self.spans.admitted()


def test_a_start_belongs_to_the_trace_in_which_it_was_asked_for(tracing: Tracing) -> None:
    with tracing.provider.get_tracer("app").start_as_current_span("app"):
        Life(replica=2).start()
    assert tracing.tree() == ["app", "  gaia.mcp.start it", "    gaia.mcp.spawn it", "    gaia.mcp.handshake it"]
    for span in tracing.named("gaia.mcp"):
        found = attributes_of(span)
        assert (found[NODE], found["gaia.mcp.placement.replica"]) == ("node-1", 2)


def test_a_server_that_is_lost_on_its_node(tracing: Tracing, metering: Metering) -> None:
    life = Life()
    spans = life.start()
    tracing.clear()
    spans.reached(state(RESTARTING, "signal", reason="it was killed", signal="SIGKILL"), 2, 3.0)
    life.ready()
    spans.returned(Restarted("it", 2, downtime=0.5))
    assert tracing.tree() == ["gaia.mcp.restart it", "  gaia.mcp.crash it", "  gaia.mcp.handshake it"]
    crash = tracing.only("gaia.mcp.crash it")
    assert crash.status.status_code is StatusCode.ERROR
    assert attributes_of(crash) == {
        **OURS,
        NODE: "node-1",
        "gaia.mcp.uptime": 3.0,
        "gaia.mcp.reason": "signal",
        "gaia.mcp.process.signal": "SIGKILL",
        "error.type": "signal",
    }
    assert metering.value("gaia.mcp.server.crashes", **OURS, **{"gaia.mcp.reason": "signal"}) == 1
    (session,) = metering.points("mcp.client.session.duration")
    assert (session.sum, session.attributes["error.type"]) == (3.0, "signal")
    assert metering.value("gaia.mcp.server.restarts", **OURS) == 1
    (recovery,) = metering.points("gaia.mcp.server.recovery.duration")
    assert recovery.sum == 0.5


def test_a_host_that_is_lost(tracing: Tracing, metering: Metering) -> None:
    life = Life()
    spans = life.start()
    tracing.clear()
    spans.host_lost("the node died", 2, 3.0)
    spans.host_greeted("node-2", 2)
    life.ready(0.5)
    assert tracing.tree() == [
        "gaia.mcp.restart it",
        "  gaia.mcp.crash it",
        "  gaia.mcp.spawn it",
        "  gaia.mcp.handshake it",
    ]
    nodes = [attributes_of(span)[NODE] for span in tracing.all]
    assert nodes == ["node-2", "node-1", "node-2", "node-2"]
    assert metering.value("gaia.mcp.server.crashes", **OURS, **{"gaia.mcp.reason": "host_lost"}) == 1
    assert metering.value("gaia.mcp.server.restarts", **OURS) == 1


def test_a_server_that_is_given_up_and_comes_later(tracing: Tracing) -> None:
    life = Life()
    life.spans.placing()
    life.spans.gave_up("no node has the resource 'browser'")
    start = tracing.only("gaia.mcp.start it")
    assert (start.status.status_code, attributes_of(start)["error.type"]) == (StatusCode.ERROR, "gave_up")
    tracing.clear()
    life.spans.host_greeted("node-1", 1)
    life.ready()
    assert tracing.tree() == ["gaia.mcp.start it", "  gaia.mcp.handshake it"]


@pytest.mark.parametrize(("loss", "names"), [(None, []), ("exited", ["gaia.mcp.rest it", "  gaia.mcp.exit it"])])
def test_a_server_that_is_at_rest(
    tracing: Tracing, metering: Metering, loss: LossReason | None, names: list[str]
) -> None:
    life = Life()
    spans = life.start()
    tracing.clear()
    spans.reached(state(EXITED, loss), 2, 3.0)
    assert tracing.tree() == names
    assert metering.points("gaia.mcp.server.crashes") == []
    (session,) = metering.points("mcp.client.session.duration")
    assert (session.sum, "error.type" in session.attributes) == (3.0, False)
    tracing.clear()
    spans.reached(state(RESTARTING), 2, None)
    life.ready()
    assert tracing.tree() == ["gaia.mcp.restart it", "  gaia.mcp.handshake it"]


def test_a_lazy_server_is_there_before_its_process(tracing: Tracing) -> None:
    life = Life()
    life.spans.placing()
    life.spans.host_greeted("node-1", 1)
    life.spans.reached(StateReached(state=EXITED), 1, None)
    assert tracing.only("gaia.mcp.start it").status.status_code is StatusCode.UNSET


def test_a_planned_replacement_is_no_restart(metering: Metering) -> None:
    Life().spans.returned(Restarted("it", 3, downtime=0.0, reason="recycled: max_calls"))
    assert metering.value("gaia.mcp.server.recyclings", **OURS, **{"gaia.mcp.reason": "max_calls"}) == 1
    assert metering.points("gaia.mcp.server.restarts") == []


def test_the_thread_is_in_no_span_afterwards(tracing: Tracing) -> None:
    one, other = Life(), Life()
    one.spans.placing()
    other.spans.placing()
    with one.spans.entered():
        running = trace.get_current_span()
    assert isinstance(running, Span)
    assert running.name == "gaia.mcp.spawn it"
    one.spans.gave_up("")
    assert trace.get_current_span() is trace.INVALID_SPAN
    other.spans.gave_up("")
    assert trace.get_current_span() is trace.INVALID_SPAN


# With hosts, which are in this process here and record spans of their own, without a node.


def ours(tracing: Tracing, name: str, count: int = 1) -> list[ReadableSpan]:
    def found() -> list[ReadableSpan]:
        return [span for span in tracing.all if span.name == name and NODE in attributes_of(span)]

    assert wait_until(lambda: len(found()) >= count), tracing.tree()
    return found()


def test_a_life(
    place: Place,
    engine: LocalEngine,
    demo_server: dict[str, Any],
    tracing: Tracing,
    metering: Metering,
    caplog: pytest.LogCaptureFixture,
) -> None:
    started_on: set[str] = set()
    ended_on: set[str] = set()

    class Threads(SpanProcessor):
        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            started_on.add(threading.current_thread().name)

        def on_end(self, span: ReadableSpan) -> None:
            if NODE in attributes_of(span):
                ended_on.add(threading.current_thread().name)

    tracing.provider.add_span_processor(Threads())
    client = place(demo_server)
    tracer = tracing.provider.get_tracer("app")
    with tracer.start_as_current_span("app") as app:
        assert client.connect()
    (start,) = ours(tracing, "gaia.mcp.start it")
    assert start.parent == app.get_span_context()
    client.call_tool("crash")
    ours(tracing, "gaia.mcp.restart it")
    (crash,) = ours(tracing, "gaia.mcp.crash it")
    assert attributes_of(crash)["gaia.mcp.process.exit_code"] == 1
    assert wait_until(lambda: any(record.name.endswith("placed_server") for record in caplog.records))
    old = link_of(engine).lose()
    assert old is not None
    assert wait_until(lambda: client.state is RESTARTING)
    future = client.submit_tool("add", {"a": 1, "b": 2})
    link_of(engine).renew()
    assert future.result(PATIENCE)["structuredContent"] == {"sum": 3}
    restart = ours(tracing, "gaia.mcp.restart it", 2)[-1]
    assert wait_until(lambda: bool([one for one in tracing.calls if one.name == "tools/call add"]))
    (call,) = [one for one in tracing.calls if one.name == "tools/call add"]
    assert [link.context for link in call.links] == [restart.context]
    # The driver counts it, and the host counts no loss of itself.
    assert metering.value("gaia.mcp.server.crashes", **OURS, **{"gaia.mcp.reason": "host_lost"}) == 1
    with tracer.start_as_current_span("end") as end:
        client.disconnect()
    (close,) = ours(tracing, "gaia.mcp.close it")
    assert close.parent == end.get_span_context()
    assert "mcp-cluster" not in started_on
    assert wait_until(lambda: bool(ended_on))
    assert all(name.startswith("mcp-it-callbacks-") for name in ended_on)
    old.stop()


def test_replicas_are_told_apart(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any], tracing: Tracing
) -> None:
    client = place(demo_server, placement=Placement(replicas=2, stateless=True))
    with tracing.provider.get_tracer("app").start_as_current_span("app") as app:
        assert client.connect()
    assert add(client) == {"sum": 3}
    starts = ours(tracing, "gaia.mcp.start it", 2)
    assert {attributes_of(span)["gaia.mcp.placement.replica"] for span in starts} == {1, 2}
    assert [span.parent for span in starts] == [app.get_span_context()] * 2
