"""Tables and figures for people: nothing in them is markup, and nothing is cut off that matters."""

from collections.abc import Callable
from typing import Any

import psutil
import pytest
from rich.console import Console
from rich.table import Table

from gaia.cli import rendering, terminal
from gaia.cli.rendering import Step, bar, list_text, microseconds, milliseconds, nothing_left, show_step, sparkline
from gaia.mcp.doctor import Check, Verdict
from gaia.mcp.doctor.examination import NOT_REACHED
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import PlacementStatus, ReplicaStatus, ServerStatus

Lines = Callable[[Table], list[str]]

HOSTILE = "[red]\x1b[2Jname[/red]\nsecond \u202e"
HARMLESS = "[red]name[/red] second"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Lines":
    """Show a table; returns its lines."""
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def shown(table: Table) -> list[str]:
        terminal.show(table)
        return capsys.readouterr().out.splitlines()

    return shown


class TestSparkline:
    def test_the_highest_value_is_a_full_bar(self) -> None:
        assert sparkline([0.0, 1.0, 2.0, 4.0]) == "▁▃▅█"

    def test_what_was_not_answered_is_a_cross(self) -> None:
        assert sparkline([1.0, None, 1.0]) == "█✗█"

    def test_only_the_last_values_are_drawn(self) -> None:
        assert sparkline([*range(100)]) == sparkline([*range(88, 100)])

    def test_terminals_of_few_characters_get_plain_ones(self) -> None:
        assert sparkline([1.0, 4.0, None], ascii_only=True) == ".#x"

    def test_there_may_be_nothing_to_draw(self) -> None:
        assert sparkline([]) == ""
        assert sparkline([0.0, None]) == "▁✗"


class TestFigures:
    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(None, "-"), (0.0, "0.00 ms"), (0.00999, "9.99 ms"), (0.01, "10 ms"), (61.0, "61000 ms")],
    )
    def test_short_times_have_more_digits(self, seconds: float | None, shown: str) -> None:
        assert milliseconds(seconds) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"), [(0.0000012, "1 µs"), (0.000999, "999 µs"), (0.0009996, "1.00 ms"), (0.5, "500 ms")]
    )
    def test_the_shortest_are_in_microseconds(self, seconds: float, shown: str) -> None:
        assert microseconds(seconds) == shown

    @pytest.mark.parametrize(
        ("share", "width", "drawn"),
        [(0.0, 8, ""), (0.0001, 8, "▏"), (0.5, 8, "████"), (1.0, 8, "████████"), (0.5, 1, "▌"), (9 / 16, 2, "█▏")],
    )
    def test_a_bar_is_as_long_as_its_share_and_never_invisible(self, share: float, width: int, drawn: str) -> None:
        assert bar(share, width) == drawn


class TestTables:
    def test_names_of_servers_are_text_of_one_line(self, lines: Lines) -> None:
        table = rendering.server_table([{"name": HOSTILE, "state": "ready", "tools": None, "source": "x" * 500}])

        header, row = lines(table)
        assert header.split() == ["name", "state", "tools", "source"]
        assert row.startswith(f"{HARMLESS} ")
        assert row.split()[-2:] == ["-", "x" * 500]

    def test_a_server_that_has_not_answered_says_for_how_long(self, lines: Lines) -> None:
        found = {"name": "it", "state": "starting", "tools": None, "source": "f", "waited": 5.0, "sandbox": True}

        assert lines(rendering.server_table([found]))[1].startswith("it    starting after 5 s, in a sandbox")

    def test_a_server_with_a_standby_is_marked(self, lines: Lines) -> None:
        found = {"name": "it", "state": "ready", "tools": 3, "source": "f", "waited": None, "standby": True}

        assert lines(rendering.server_table([found]))[1].startswith("it    ready, with a stand-by")

    def test_a_status_has_its_last_error_whole_unless_it_is_live(self, lines: Lines) -> None:
        status = ServerStatus(name="it", state=ServerState.FAILED, last_error="no licence " * 40, latency_p50=0.002)
        (row,) = lines(rendering.status_table([(status, [0.1, None])], width=200))[1:]
        live = lines(rendering.status_table([(status, [0.1, None])], width=200, live=True, ascii_only=True))[1]

        assert row.count("no licence") == 40
        assert row.split()[:7] == ["it", "failed", "0", "0", "0", "0", "2.00"]
        assert "#x" in live
        assert "#x" not in row

    @pytest.mark.parametrize("live", [True, False])
    @pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
    def test_a_narrow_terminal_keeps_the_last_error(
        self, width: int, live: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        looks = [
            (
                ServerStatus(name="filesystem", state=ServerState.READY, latency_p50=0.0012, latency_p95=0.012),
                [0.1] * 12,
            ),
            (ServerStatus(name="git", state=ServerState.RESTARTING, last_error="the server exited with code 1"), []),
        ]
        Console(width=width).print(rendering.status_table(looks, width=width, live=live))
        shown = capsys.readouterr().out.splitlines()

        assert len(shown) == 3
        assert "the server exited with code" in shown[2]
        assert [word for word in ("name", "state", "last error") if word not in shown[0]] == []
        assert "restarting" in shown[2]
        assert ("p50" in shown[0]) == (width >= 120)

    def test_where_placed_servers_run_is_shown_if_there_are_any(self, lines: Lines) -> None:
        def on(*nodes: str) -> tuple[ReplicaStatus, ...]:
            places = [PlacementStatus(node=node, node_id=node, host_pid=1) for node in nodes]
            return tuple(
                ReplicaStatus(replica=number, state=ServerState.READY, placement=place)
                for number, place in enumerate(places, 1)
            )

        here = ServerStatus(name="here", state=ServerState.READY)
        placed = ServerStatus(name="placed", state=ServerState.READY, placement=on("worker-1")[0].placement)
        many = ServerStatus(name="many", state=ServerState.READY, replicas=on("worker-1", "worker-2", "worker-2"))

        header, *rows = lines(rendering.status_table([(status, []) for status in (here, placed, many)], width=200))
        assert header.split()[:3] == ["name", "state", "node"]
        assert [row.split()[2] for row in rows[:2]] == ["-", "worker-1"]
        assert "3 replicas on 2 nodes" in rows[2]
        assert "node" not in lines(rendering.status_table([(here, [])], width=200))[0]

    def test_a_placed_server_says_on_which_node_it_is(self, lines: Lines) -> None:
        found = {"name": "it", "state": "ready", "tools": 3, "source": "f", "waited": None, "node": "worker-1"}

        assert lines(rendering.server_table([found]))[1].startswith("it    ready on node worker-1 ")

    def test_a_step_that_failed_is_marked(self, lines: Lines) -> None:
        steps = [
            {"name": "spawn", "ok": True, "seconds": 0.1, "detail": HOSTILE},
            {"name": "handshake", "ok": False, "seconds": None, "detail": "failed"},
        ]

        _, spawn, handshake = lines(rendering.step_table(steps))
        assert spawn.split(maxsplit=4) == ["✓", "spawn", "100", "ms", HARMLESS]
        assert handshake.split() == ["✗", "handshake", "-", "failed"]

    def test_a_remedy_stands_below_its_check_and_the_unreached_are_one_line(self, lines: Lines) -> None:
        checks = [
            Check("start", Verdict.FAIL, "no such program", "Install it."),
            Check("handshake", Verdict.SKIPPED, NOT_REACHED),
            Check("tools", Verdict.SKIPPED, NOT_REACHED),
        ]

        start, remedy, rest = lines(rendering.check_table(checks))
        assert start.split(maxsplit=2) == ["✗", "start", "no such program"]
        assert remedy.strip() == "→ Install it."
        assert rest.split(maxsplit=2) == ["-", "handshake", "this and what follows: not reached"]

    def test_latencies_are_in_their_columns(self, lines: Lines) -> None:
        header, row = lines(rendering.latency_table([("one caller", (0.0001, 0.0002, 0.0003, 0.5), 12345.6)]))

        assert header.split() == ["p50", "p95", "p99", "longest", "calls/s"]
        assert row.split() == ["one", "caller", "100", "µs", "200", "µs", "300", "µs", "500", "ms", "12,346"]

    def test_a_diff_keeps_its_lines(self) -> None:
        lines = ["@@ tool @@", "-old [bold]", "+new\x1b[2J", " same"]

        assert rendering.difference_text(lines).plain.splitlines() == ["@@ tool @@", "-old [bold]", "+new", " same"]


def test_a_step_is_shown_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    show_step(Step("one", True, ["It works", "in no time"], {}))
    show_step(Step("two", False, ["It does not"], {}))
    assert capsys.readouterr().out.splitlines() == ["✓ It works", "    in no time", "✗ It does not"]


def test_processes_that_are_left_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: ([], [own]))
    step = nothing_left({own})
    assert (step.ok, step.facts["left"]) == (False, [own.pid])


def test_processes_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    monkeypatch.setattr(psutil, "wait_procs", lambda *_, **__: ([own], []))
    step: Any = nothing_left({own})
    assert (step.ok, step.facts) == (True, {"pids": [own.pid], "left": []})
    assert list_text([1, 2]) == "1, 2"
