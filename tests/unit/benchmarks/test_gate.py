"""The gate: what has to hold, and what is found where it does not."""

import pytest

from benchmarks.gate import Finding, judge
from benchmarks.results import Unit
from tests.unit.benchmarks.runs import MIB, against_floor, run_of

SMALL = "latency: 64 B, two cores: p50"


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


class TestBars:
    @pytest.mark.parametrize(
        ("key", "most"),
        [
            ("latency: 64 B, two cores: p50", 2.0),
            ("latency: 64 B, one core: p50", 8.0),
            ("latency: 1 MiB, two cores: p50", 1.5),
        ],
    )
    def test_limit_how_many_times_the_floor_a_call_takes(self, key: str, most: float) -> None:
        just = judge(run_of((key, "seconds", against_floor([most * 1e-5], [1e-5]))))
        over = judge(run_of((key, "seconds", against_floor([most * 1.01e-5], [1e-5]))))

        assert only(just).accepted
        assert not only(over).accepted

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
        finding = only(judge(run_of((SMALL, "seconds", against_floor([3e-5], [1e-5])))))

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
