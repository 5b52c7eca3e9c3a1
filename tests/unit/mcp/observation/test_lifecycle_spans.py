"""What traces and metrics tell of a server's life, and of the calls that lived through its crashes."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from gaia.mcp.client import MCPClient
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans, LossReason, StandbySpans
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.supervision.events import ServerState
from tests.servers.answers import text
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Connect = Callable[..., MCPClient]
FaultServer = Callable[..., Json]

QUICK = {"initialDelay": 0.05, "jitter": 0}


@pytest.fixture
def crashing_once(fault_server: FaultServer, tmp_path: Path) -> Json:
    """A server whose first process dies of the first call of ``pid``, which is safe to repeat."""
    return fault_server(
        faults=[{"tool": "pid", "crash": "before_answer", "exit_code": 7}],
        by_start={"2": {"faults": []}},
        state_file=str(tmp_path / "state"),
        stderr_flood=80,
    )


class TestGoldenTrace:
    def test_a_call_that_survived_a_crash(self, crashing_once: Json, connect: Connect, tracing: Tracing) -> None:
        client = connect(crashing_once, restart=QUICK)
        tracing.wait_for("gaia.mcp.start fault")
        tracing.clear()
        assert int(text(client.call_tool("pid", timeout=PATIENCE))) > 0
        client.disconnect()

        assert tracing.tree() == [
            "tools/call pid",
            "gaia.mcp.restart fault",
            "  gaia.mcp.crash fault",
            "  gaia.mcp.backoff fault",
            "  gaia.mcp.spawn fault",
            "  gaia.mcp.handshake fault",
            "    initialize",
            "    notifications/initialized",
            "    tools/list",
            "gaia.mcp.close fault",
        ]
        call, restart = tracing.call, tracing.only("gaia.mcp.restart fault")
        assert call.status.status_code is restart.status.status_code is StatusCode.UNSET
        assert [event.name for event in call.events] == ["gaia.mcp.call.repeated", "gaia.mcp.call.resumed"]
        repeated = dict(call.events[0].attributes or {})
        assert repeated["jsonrpc.request.id"] == attributes_of(call)["jsonrpc.request.id"]
        assert repeated["gaia.mcp.request.earlier_id"] != repeated["jsonrpc.request.id"]
        assert "exited with code 7" in str(repeated["gaia.mcp.call.reason"])
        (link,) = call.links
        assert restart.context is not None
        assert link.context.trace_id == restart.context.trace_id

    def test_the_crash_the_wait_and_the_start_say_how_they_were(
        self, crashing_once: Json, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(crashing_once, restart=QUICK)
        client.call_tool("pid", timeout=PATIENCE)
        (crash,) = tracing.wait_for("gaia.mcp.crash fault")
        attributes = attributes_of(crash)
        assert attributes["gaia.mcp.reason"] == attributes["error.type"] == "exit_code"
        assert attributes["gaia.mcp.process.exit_code"] == 7
        assert "eeee" in attributes["gaia.mcp.process.stderr_tail"]
        assert 0 < attributes["gaia.mcp.uptime"] < PATIENCE
        assert crash.status.status_code is StatusCode.ERROR
        (backoff,) = tracing.wait_for("gaia.mcp.backoff fault")
        assert attributes_of(backoff)["gaia.mcp.backoff.delay"] == 0.0
        spawns = tracing.wait_for("gaia.mcp.spawn fault", 2)
        assert [attributes_of(span)["gaia.mcp.generation"] for span in spawns] == [1, 2]
        assert attributes_of(spawns[1])["gaia.mcp.process.pid"] == client.status.pid

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there are no such signals")
    def test_a_signal_is_named(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing, metering: Metering
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "crash": "before_answer", "signal": 9}]), restart=QUICK)
        client.call_tool("echo", {"text": "hi"})
        (crash,) = tracing.wait_for("gaia.mcp.crash fault")
        assert attributes_of(crash)["gaia.mcp.process.signal"] == "SIGKILL"
        assert metering.value("gaia.mcp.server.crashes", gaia__mcp__reason="signal") == 1


class TestStart:
    def test_it_belongs_to_the_trace_of_whoever_connects(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        with tracing.provider.get_tracer("app").start_as_current_span("main"):
            client = connect(fault_server())
            client.disconnect()
        assert tracing.tree() == [
            "main",
            "  gaia.mcp.start fault",
            "    gaia.mcp.spawn fault",
            "    gaia.mcp.handshake fault",
            "      server/discover",
            "      initialize",
            "      notifications/initialized",
            "      tools/list",
            "  gaia.mcp.close fault",
        ]
        close = tracing.only("gaia.mcp.close fault")
        assert attributes_of(close)["gaia.mcp.process.exit_code"] == 0
        assert close.status.status_code is StatusCode.UNSET

    def test_a_command_that_does_not_exist(self, tracing: Tracing, metering: Metering) -> None:
        client = MCPClient.from_config("fault", {"command": "no-such-program-anywhere"})
        assert not client.connect()
        (spawn,) = tracing.wait_for("gaia.mcp.spawn fault")
        (start,) = tracing.wait_for("gaia.mcp.start fault")
        assert attributes_of(spawn)["error.type"] == "start_failed"
        assert attributes_of(start)["error.type"] == "gave_up"
        assert "no-such-program-anywhere" in str(spawn.status.description)
        assert metering.value("gaia.mcp.server.crashes", gaia__mcp__reason="start_failed") == 1
        assert metering.value("gaia.mcp.server.restarts") == 0

    def test_a_server_that_exits_at_once(self, fault_server: FaultServer, tracing: Tracing) -> None:
        client = MCPClient.from_config("fault", fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
        assert not client.connect()
        client.disconnect()
        crashes = tracing.wait_for("gaia.mcp.crash fault")
        assert attributes_of(crashes[-1])["gaia.mcp.process.exit_code"] == 3
        assert "no licence" in attributes_of(crashes[-1])["gaia.mcp.process.stderr_tail"]
        (start,) = tracing.wait_for("gaia.mcp.start fault")
        assert start.status.status_code is StatusCode.ERROR


class TestEnd:
    def test_a_server_that_leaves_by_itself_has_not_crashed(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing, metering: Metering, tmp_path: Path
    ) -> None:
        config = fault_server(
            faults=[{"tool": "echo", "crash": "after_answer", "exit_code": 0}],
            by_start={"2": {"faults": []}},
            state_file=str(tmp_path / "state"),
        )
        client = connect(config)
        client.call_tool("echo", {"text": "hi"})
        assert wait_until(lambda: client.state is ServerState.EXITED)
        (rest,) = tracing.wait_for("gaia.mcp.rest fault")
        (leave,) = tracing.wait_for("gaia.mcp.exit fault")
        assert rest.status.status_code is leave.status.status_code is StatusCode.UNSET
        assert metering.value("gaia.mcp.server.crashes") == 0
        client.call_tool("pid")
        assert metering.value("gaia.mcp.server.restarts") == 1

    def test_a_request_that_the_end_interrupts_is_told_too(self, fault_server: FaultServer, tracing: Tracing) -> None:
        client = MCPClient.from_config("fault", fault_server(faults=[{"on": "initialize", "hang": True}]))
        starting = threading.Thread(target=client.connect)
        starting.start()
        tracing.wait_for("server/discover")
        client.disconnect()
        starting.join(PATIENCE)
        (initialize,) = tracing.wait_for("initialize")
        assert attributes_of(initialize)["error.type"] == "cancelled"


class TestMetrics:
    def test_recoveries_and_sessions_of_the_handshake_era_are_counted_and_timed(
        self, crashing_once: Json, connect: Connect, metering: Metering
    ) -> None:
        client = connect(crashing_once, restart=QUICK)
        client.call_tool("pid", timeout=PATIENCE)
        assert metering.value("gaia.mcp.server.restarts", gaia__mcp__server__name="fault") == 1
        assert metering.value("gaia.mcp.server.crashes", gaia__mcp__reason="exit_code") == 1
        (recovery,) = metering.points("gaia.mcp.server.recovery.duration")
        assert recovery.count == 1
        assert 0 < recovery.sum < PATIENCE
        client.disconnect()
        points = {p.attributes.get("error.type"): p for p in metering.points("mcp.client.session.duration")}
        assert {error: point.count for error, point in points.items()} == {"exit_code": 1, None: 1}
        assert dict(points[None].attributes) == {
            "mcp.protocol.version": "2025-11-25",
            "network.transport": "pipe",
            "gaia.mcp.server.name": "fault",
        }

    def test_there_are_no_sessions_in_the_stateless_era(
        self, fault_server: FaultServer, connect: Connect, metering: Metering
    ) -> None:
        client = connect(fault_server(era="stateless"))
        assert client.protocol_version == "2026-07-28"
        client.disconnect()
        assert metering.points("mcp.client.session.duration") == []

    def test_calls_that_wait_and_that_are_under_way_can_be_read(
        self, fault_server: FaultServer, connect: Connect, metering: Metering
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]))
        futures = [client.submit_tool("echo", {"text": "hi"}) for _ in range(3)]
        assert metering.value("gaia.mcp.client.calls.in_flight", gaia__mcp__server__name="fault") == 3
        assert metering.value("gaia.mcp.client.calls.queued", gaia__mcp__server__name="fault") == 0
        for future in futures:
            future.cancel()
        assert metering.value("gaia.mcp.client.calls.in_flight") == 0
        client.disconnect()
        assert metering.points("gaia.mcp.client.calls.in_flight") == []

    def test_calls_that_are_not_made_are_counted_by_reason(
        self, fault_server: FaultServer, connect: Connect, metering: Metering
    ) -> None:
        client = connect(
            fault_server(faults=[{"tool": "echo", "await_cancel": True}]), disabledTools=["pid"], maxPending=1
        )
        client.call_tool("pid")
        future = client.submit_tool("echo", {"text": "hi"})
        assert client.call_tool("echo", {"text": "hi"})["error_type"] == "overloaded"
        future.cancel()
        client.disconnect()
        with pytest.raises(RuntimeError):
            client.call_tool("echo", {"text": "hi"})
        for reason in ("denied", "overloaded", "not_connected"):
            assert metering.value("gaia.mcp.client.calls.refused", error__type=reason) == 1

    def test_junk_on_stdout_is_counted_in_bytes(
        self, fault_server: FaultServer, connect: Connect, metering: Metering
    ) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "junk": [{"text": "loading"}]}]))
        client.call_tool("echo", {"text": "hi"})
        assert metering.value("gaia.mcp.server.junk") == client.status.noise_bytes > 0


def terminate(life: LifecycleSpans, reason: LossReason) -> None:
    """Tell the end of a server of which nothing more is known."""
    life.terminated(reason, "", exit_code=None, signal=None, stderr_tail="", expected=False)


class TestWithoutAServer:
    """What the supervisor tells is what is recorded, on a thread of the executor's choice."""

    @pytest.fixture
    def ending(self) -> list[Callable[[], object]]:
        """The ends of spans that the executor has not got to."""
        return []

    @pytest.fixture
    def life(self, tracing: Tracing, ending: list[Callable[[], object]]) -> LifecycleSpans:
        return LifecycleSpans(Observer("it", {"network.transport": "pipe"}), ending.append)

    @pytest.fixture
    def finish(self, ending: list[Callable[[], object]]) -> Callable[[], None]:
        def finish() -> None:
            assert trace.get_current_span() is trace.INVALID_SPAN, "the supervisor's thread is left in a span"
            for end in ending:
                end()
            ending.clear()

        return finish

    def test_no_span_ends_on_the_supervisors_thread(
        self, life: LifecycleSpans, tracing: Tracing, finish: Callable[[], None]
    ) -> None:
        life.opening(1)
        life.spawned(7)
        life.ready("2025-11-25", None)
        life.admitted()
        assert tracing.all == []
        finish()
        assert tracing.tree() == ["gaia.mcp.start it", "  gaia.mcp.spawn it", "  gaia.mcp.handshake it"]

    def test_the_request_of_the_application_is_the_parent_of_one_trace_only(
        self, life: LifecycleSpans, tracing: Tracing, finish: Callable[[], None]
    ) -> None:
        with tracing.provider.get_tracer("app").start_as_current_span("main"):
            life.requested()
        life.opening(1)
        life.ready("2025-11-25", None)
        life.admitted()
        life.lost("hung", 1.0)
        terminate(life, "hung")
        life.gave_up("too often")
        finish()
        assert tracing.only("gaia.mcp.start it").parent is not None
        assert tracing.only("gaia.mcp.restart it").parent is None

    def test_starts_that_follow_each_other_are_one_restart(
        self, life: LifecycleSpans, tracing: Tracing, finish: Callable[[], None]
    ) -> None:
        life.lost("output_closed", 1.0)
        terminate(life, "output_closed")
        for generation in (2, 3):
            life.backing_off(0.5)
            life.opening(generation)
            life.not_spawned("no memory")
        life.gave_up("it does not start")
        finish()
        assert tracing.tree() == [
            "gaia.mcp.restart it",
            "  gaia.mcp.crash it",
            *["  gaia.mcp.backoff it", "  gaia.mcp.spawn it"] * 2,
        ]
        restart = tracing.only("gaia.mcp.restart it")
        assert restart.status.description == "it does not start"
        assert attributes_of(restart)["error.type"] == "gave_up"

    def test_what_is_not_known_of_an_end_is_left_out(
        self, life: LifecycleSpans, tracing: Tracing, finish: Callable[[], None]
    ) -> None:
        life.lost("unreachable", None)
        terminate(life, "unreachable")
        life.stays_exited()
        finish()
        assert attributes_of(tracing.only("gaia.mcp.crash it")) == {
            "gaia.mcp.server.name": "it",
            "gaia.mcp.reason": "unreachable",
            "error.type": "unreachable",
        }
        assert tracing.named("gaia.mcp.rest it")

    def test_closing_ends_what_was_under_way(
        self, life: LifecycleSpans, tracing: Tracing, finish: Callable[[], None]
    ) -> None:
        life.opening(1)
        life.closing(None)
        life.closed(None, "SIGTERM")
        finish()
        assert tracing.tree() == ["gaia.mcp.start it", "  gaia.mcp.spawn it", "gaia.mcp.close it"]
        assert attributes_of(tracing.only("gaia.mcp.close it"))["gaia.mcp.process.signal"] == "SIGTERM"

    def test_a_session_counts_from_readiness_and_only_where_there_are_sessions(
        self, life: LifecycleSpans, metering: Metering
    ) -> None:
        life.lost("handshake_failed", None)
        life.lost("hung", 1.0)
        assert metering.points("mcp.client.session.duration") == []
        for revision in ("2026-07-28", "2025-11-25"):
            life.ready(revision, None)
            life.lost("hung", 2.0)
        life.closing(None)
        life.closed(0, None)
        (point,) = metering.points("mcp.client.session.duration")
        assert (point.count, point.sum, point.attributes["error.type"]) == (1, 2.0, "hung")

    def test_without_tracing_nothing_is_handed_to_the_executor(self, metering: Metering) -> None:
        ends: list[object] = []
        life = LifecycleSpans(Observer("it"), ends.append)
        life.requested()
        life.opening(1)
        life.not_spawned("no memory")
        life.gave_up("it does not start")
        life.closing(None)
        life.closed(None, None)
        assert ends == []
        assert metering.value("gaia.mcp.server.crashes", gaia__mcp__reason="start_failed") == 1

    @pytest.mark.parametrize("took_over", [True, False])
    def test_the_restart_and_the_metrics_say_whether_a_standby_took_over(
        self,
        life: LifecycleSpans,
        tracing: Tracing,
        metering: Metering,
        finish: Callable[[], None],
        took_over: bool,
    ) -> None:
        life.lost("signal", 1.0)
        terminate(life, "signal")
        if took_over:
            life.took_over(2, 77)
        else:
            life.opening(2)
            life.spawned(77)
        life.ready("2025-11-25", 0.002)
        life.admitted()
        finish()
        parts = [] if took_over else ["  gaia.mcp.spawn it", "  gaia.mcp.handshake it"]
        assert tracing.tree() == ["gaia.mcp.restart it", "  gaia.mcp.crash it", *parts]
        attributes = attributes_of(tracing.only("gaia.mcp.restart it"))
        assert attributes.get("gaia.mcp.standby", False) is took_over
        if took_over:
            assert (attributes["gaia.mcp.generation"], attributes["gaia.mcp.process.pid"]) == (2, 77)
        (point,) = metering.points("gaia.mcp.server.restarts")
        assert dict(point.attributes).get("gaia.mcp.standby", False) is took_over


class TestStandby:
    """The start of a stand-by, which belongs to nothing else."""

    def test_its_start_is_a_trace_of_its_own(
        self, fault_server: FaultServer, connect: Connect, tracing: Tracing
    ) -> None:
        client = connect(fault_server(), standby=True)
        (start,) = tracing.wait_for("gaia.mcp.standby fault")
        pid = attributes_of(start)["gaia.mcp.process.pid"]
        assert client.status.standby is not None
        assert client.status.standby.pid == pid
        assert start.parent is None
        assert attributes_of(start)["gaia.mcp.generation"] == 2
        assert start.context is not None
        spans = [span for span in tracing.wait_for("initialize", 2) if span.parent is not None]
        assert start.context.span_id in {span.parent.span_id for span in spans if span.parent is not None}

    def test_one_that_failed_is_counted_and_its_start_says_so(self, tracing: Tracing, metering: Metering) -> None:
        starts = StandbySpans(Observer("it"), lambda task: task())
        starts.opening(2)
        starts.failed("no memory")
        span = tracing.only("gaia.mcp.standby it")
        assert span.status.description == "no memory"
        assert attributes_of(span)["error.type"] == "standby_failed"
        (point,) = metering.points("gaia.mcp.server.standby.failures")
        assert point.value == 1
