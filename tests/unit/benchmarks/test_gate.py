"""The gate: what has to hold, and what is found where it does not."""

import pytest

from benchmarks.gate import Finding, judge
from benchmarks.results import Unit
from tests.unit.benchmarks.runs import MIB, against_floor, run_of

SMALL = "latency: 64 B, two cores: p50"
HTTP = "http: JSON answers, 64 B, two cores: p50"
CROWD = "http: JSON answers, calls per second: 32 callers"
ADDED = "tracing: added to the p50 of a call of 64 B"
KILLED = "recovery: after kill -9: next good answer"


def bar(findings: list[Finding]) -> Finding:
    """The finding about a limit, besides what is found about the worst round."""
    return only([finding for finding in findings if "worst round" not in finding.what])


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


class TestBars:
    @pytest.mark.parametrize(
        ("key", "most"),
        [
            ("latency: 64 B, two cores: p99", 4.0),
            ("latency: 64 B, one core: p50", 4.5),
            ("latency: 1 MiB, two cores: p50", 1.5),
        ],
    )
    def test_limit_how_many_times_the_floor_a_call_takes(self, key: str, most: float) -> None:
        just = judge(run_of((key, "seconds", against_floor([most * 1e-5], [1e-5]))))
        over = judge(run_of((key, "seconds", against_floor([most * 1.01e-5], [1e-5]))))

        assert bar(just).accepted
        assert not bar(over).accepted

    def test_have_a_goal_besides_a_limit(self) -> None:
        between = judge(run_of((SMALL, "seconds", against_floor([2.1e-5], [1e-5]))))

        assert [(finding.wanted, finding.ok) for finding in between] == [
            ("at most 2 times", False),
            ("at most 2.2 times", True),
        ]

    @pytest.mark.parametrize(("times", "ok"), [(6.0, True), (6.1, False)])
    def test_compare_http_with_a_socket(self, times: float, ok: bool) -> None:
        finding = only(judge(run_of((HTTP, "seconds", {"gaia-mcp": [times * 1e-5], "raw-socket": [1e-5]}))))

        assert (finding.found, finding.ok) == (f"{times:.2f} times the raw socket", ok)

    @pytest.mark.parametrize(("figure", "ok"), [(5e-5, True), (5.1e-5, False)])
    def test_compare_tracing_with_a_span_of_opentelemetry(self, figure: float, ok: bool) -> None:
        values = {"own-span": [2e-5], "gaia-mcp-traced": [figure]}
        finding = only(judge(run_of((f"{ADDED}: one core", "seconds", values))))

        assert (finding.what, finding.ok) == (f"{ADDED}: one core, gaia-mcp, all traces sampled", ok)

    @pytest.mark.parametrize(
        ("key", "contender", "limit"),
        [
            (f"{ADDED}: two cores", "gaia-mcp-traced", 100e-6),
            (f"{ADDED}: one core", "gaia-mcp-unsampled", 10e-6),
            (KILLED, "gaia-mcp-standby", 0.010),
            (
                "recovery: after kill -9 of a server that takes 1.5 s to start: next good answer",
                "gaia-mcp-standby",
                0.01,
            ),
            ("start and end: 200 servers: end", "gaia-mcp", 0.7),
        ],
    )
    def test_limit_seconds(self, key: str, contender: str, limit: float) -> None:
        assert only(judge(run_of((key, "seconds", {contender: [limit]})))).ok
        assert not only(judge(run_of((key, "seconds", {contender: [limit * 1.01]})))).ok

    @pytest.mark.parametrize(("recovered", "ok"), [([1.519, 1.7, 1.5], True), ([1.521, 1.6, 1.5], False)])
    def test_compare_recovery_with_the_start_of_the_server(self, recovered: list[float], ok: bool) -> None:
        finding = only(judge(run_of((KILLED, "seconds", against_floor(recovered, [1.5, 1.5, 1.5])))))

        assert (finding.wanted, finding.ok) == ("at most 20 ms more than the server's own start", ok)

    @pytest.mark.parametrize(("gaia", "ok"), [(1e-4, True), (1.01e-4, False)])
    def test_hold_how_much_better_than_the_sdk_a_call_over_http_is(self, gaia: float, ok: bool) -> None:
        findings = judge(run_of((HTTP, "seconds", {"gaia-mcp": [gaia], "mcp": [1e-3]})))

        assert [(each.wanted, each.ok) for each in findings] == [
            ("at least 10 times as good as mcp, async", ok),
            ("ahead of every peer", True),
        ]

    @pytest.mark.parametrize(("gaia", "verdicts"), [(6000.0, [True, True]), (5999.0, [False, False])])
    def test_hold_how_many_calls_over_http_are_answered(self, gaia: float, verdicts: list[bool]) -> None:
        findings = judge(run_of((CROWD, "calls/s", {"gaia-mcp": [gaia], "mcp": [1000.0]})))

        assert [finding.ok for finding in findings[:2]] == verdicts

    def test_count_what_failed_as_missed_and_say_why(self) -> None:
        run = run_of((KILLED, "seconds", {}))
        run.failures = {"recovery": {"gaia-mcp-standby": "no stand-by was started", "mcp": "no good answer"}}

        findings = [finding for finding in judge(run) if finding.what.startswith(KILLED)]
        assert [(each.found, each.ok, each.cause) for each in findings] == [
            ("could not be measured", False, "gaia-mcp, with a stand-by: no stand-by was started")
        ]

    @pytest.mark.parametrize(
        ("key", "unit", "good", "bad"),
        [
            ("throughput: 1 server, two cores: 32 callers", "calls/s", 20_000, 19_999),
            ("footprint: memory: 1 server", "bytes", 34 * MIB, 34 * MIB + 1),
            ("footprint: memory: 50 servers", "bytes", 45 * MIB, 45 * MIB + 1),
            ("start: cold start: import", "seconds", 0.150, 0.151),
        ],
    )
    def test_limit_absolute_figures(self, key: str, unit: Unit, good: float, bad: float) -> None:
        assert only(judge(run_of((key, unit, {"gaia-mcp": [good]})))).accepted
        assert not only(judge(run_of((key, unit, {"gaia-mcp": [bad]})))).accepted

    def test_say_what_decides_about_them_where_they_are_missed(self) -> None:
        key = "throughput: 1 server, two cores: 32 callers"
        missed = only(judge(run_of((key, "calls/s", {"gaia-mcp": [16_000.0]}))))

        assert "switches of threads" in missed.cause
        assert not missed.accepted
        assert only(judge(run_of((key, "calls/s", {"gaia-mcp": [21_000.0]})))).cause == ""

    def test_hold_the_99th_percentile_in_every_round(self) -> None:
        key = "latency: 10 KiB, two cores: p99"
        usual = judge(run_of((key, "seconds", against_floor([0.001, 0.0509, 0.001], [0.001, 0.001, 0.001]))))
        once = judge(run_of((key, "seconds", against_floor([0.001, 0.0511, 0.001], [0.001, 0.001, 0.001]))))

        assert only(usual).accepted
        assert not only(once).accepted

    def test_say_what_was_found_and_what_is_wanted(self) -> None:
        finding = judge(run_of((SMALL, "seconds", against_floor([3e-5], [1e-5]))))[0]

        assert finding[:4] == (SMALL, "3.00 times the raw pipe", "at most 2 times", False)


class TestRivalries:
    def test_are_with_the_best_peer(self) -> None:
        values = {"gaia-mcp": [1.0], "mcp": [4.0], "fastmcp": [2.0]}
        finding = only(judge(run_of(("start: cold start: first", "seconds", values))))

        assert finding.ok
        assert finding.found == "2.00 times as good as fastmcp, async"

    def test_are_lost_by_whoever_is_no_better(self) -> None:
        assert not only(judge(run_of(("a: b: c", "seconds", {"gaia-mcp": [2.0], "mcp": [2.0]})))).accepted

    def test_know_that_more_calls_are_better(self) -> None:
        assert only(judge(run_of(("a: b: c", "calls/s", {"gaia-mcp": [2.0], "mcp": [1.0]})))).accepted
        assert not only(judge(run_of(("a: b: c", "calls/s", {"gaia-mcp": [1.0], "mcp": [2.0]})))).accepted

    def test_may_be_lost_for_a_reason_that_is_given(self) -> None:
        finding = only(judge(run_of(("footprint: threads: 50 servers", "count", {"gaia-mcp": [251], "mcp": [2]}))))

        assert not finding.ok
        assert finding.accepted
        assert "threads of its own" in finding.explanation

    def test_against_a_peer_that_uses_nothing(self) -> None:
        key = "footprint: memory of its helpers: 1 server"
        assert not only(judge(run_of((key, "bytes", {"gaia-mcp": [1.0], "mcp": [0.0]})))).ok


def test_what_was_not_measured_is_not_judged() -> None:
    assert judge(run_of()) == []
    assert judge(run_of((SMALL, "seconds", {"mcp": [1.0]}))) == []


class TestGateways:
    @pytest.mark.parametrize(("times", "ok"), [(4.0, True), (4.1, False)])
    def test_are_compared_with_a_pipe_and_an_exchange_over_http(self, times: float, ok: bool) -> None:
        values = {"gateway": [times * 1e-5], "pipe-and-http": [1e-5]}
        finding = only(judge(run_of(("gateway: 64 B: p50", "seconds", values))))

        assert (finding.ok, finding.found) == (ok, f"{times:.2f} times the raw pipe and raw HTTP, added up")

    @pytest.mark.parametrize(("rate", "ok"), [(3_000.0, True), (2_900.0, False)])
    def test_answer_a_share_of_what_the_floor_does(self, rate: float, ok: bool) -> None:
        key = "gateway, stateless clients: calls per second: 32 sessions"
        finding = only(judge(run_of((key, "calls/s", {"gateway": [rate], "raw-http": [1e4]}))))

        assert (finding.ok, finding.wanted) == (ok, "at least 30%")

    @pytest.mark.parametrize(("figure", "ok"), [(1e-3, True), (2.1e-3, False)])
    def test_have_rivals_of_their_own(self, figure: float, ok: bool) -> None:
        values = {"gateway": [figure], "mcp-gateway": [2e-3], "mcp": [1e-9]}
        finding = only(judge(run_of(("gateway: 64 B, one core: p50", "seconds", values))))

        assert (finding.ok, finding.wanted) == (ok, "ahead of every peer")

    @pytest.mark.parametrize(("beside", "ok"), [(2e-3, True), (2.1e-3, False)])
    def test_keep_a_runaway_client_from_others(self, beside: float, ok: bool) -> None:
        section, table = "gateway, runaway client", "calls of another client"
        run = run_of()
        for column, figure in (("p99 alone", 1e-3), ("p99 beside it", beside)):
            run.row(section, table, column, "seconds").values["gateway-guarded"] = [figure]

        assert only(judge(run)).ok is ok

    @pytest.mark.parametrize(("told", "accepted"), [(32.0, True), (31.0, False)])
    def test_say_of_each_call_whether_the_server_may_have_acted(self, told: float, accepted: bool) -> None:
        section, table = "gateway, server killed with calls", "what is said of 32 calls"
        run = run_of()
        row = run.row(section, table, "clients told whether it may have acted", "count", more_is_better=True)
        row.values.update({"gateway": [told], "mcp-gateway": [0.0]})
        limit, rivals = judge(run)

        assert limit.ok is accepted
        assert rivals.ok
