"""A run next to a stored one."""

from benchmarks.comparison import compare
from benchmarks.results import Run
from tests.unit.benchmarks.runs import MIB, against_floor, run_of

P50 = "latency: 64 B, two cores: p50"
P99 = "latency: 64 B, two cores: p99"
CALLS = "throughput: 1 server, two cores: 32 callers"
HTTP = "http: JSON answers, 64 B, two cores: p50"
RECOVERY = "recovery: after kill -9: next good answer"
MEMORY = "footprint: memory: 1 server"
THREADS = "footprint: threads: 1 server"


def regressions(now: Run, before: Run) -> list[str]:
    return [change.key for change in compare(now, before) if change.regressed]


def test_a_machine_that_is_slower_is_no_regression() -> None:
    before = run_of((P50, "seconds", against_floor([2e-5], [1e-5])))
    now = run_of((P50, "seconds", against_floor([8e-5], [4e-5])))

    assert regressions(now, before) == []


def test_a_client_that_is_slower_is_one() -> None:
    before = run_of((P50, "seconds", against_floor([2e-5], [1e-5])))
    now = run_of((P50, "seconds", against_floor([4e-5], [1e-5])))

    (change,) = compare(now, before)
    assert change.regressed
    assert (change.before, change.now, change.times) == (2.0, 4.0, 2.0)
    assert regressions(before, now) == []


def test_fewer_calls_a_second_are_a_regression() -> None:
    before = run_of((CALLS, "calls/s", against_floor([20_000], [100_000])))
    now = run_of((CALLS, "calls/s", against_floor([10_000], [100_000])))

    assert regressions(now, before) == [CALLS]
    assert regressions(before, now) == []


def test_high_percentiles_may_vary_more() -> None:
    rows = {key: against_floor([1.8e-5], [1e-5]) for key in (P50, P99)}
    before = run_of(*((key, "seconds", against_floor([1e-5], [1e-5])) for key in rows))
    now = run_of(*((key, "seconds", values) for key, values in rows.items()))

    assert regressions(now, before) == [P50]


def test_memory_is_compared_as_it_is_and_threads_are_counted() -> None:
    before = run_of(
        (MEMORY, "bytes", against_floor([25 * MIB], [12 * MIB])), (THREADS, "count", against_floor([6], [1]))
    )
    now = run_of((MEMORY, "bytes", against_floor([30 * MIB], [24 * MIB])), (THREADS, "count", against_floor([7], [1])))

    assert regressions(now, before) == [MEMORY, THREADS]
    assert regressions(before, before) == []


def test_each_kind_of_row_has_its_own_floor() -> None:
    before = run_of((HTTP, "seconds", {"gaia-mcp": [1e-4], "raw-socket": [2e-5]}))
    now = run_of((HTTP, "seconds", {"gaia-mcp": [2e-4], "raw-socket": [4e-5]}))

    (change,) = compare(now, before)
    assert (change.before, change.now, change.times) == (5.0, 5.0, 1.0)


def test_figures_are_compared_as_they_are_where_one_run_has_no_floor() -> None:
    before = run_of((RECOVERY, "seconds", {"gaia-mcp": [0.5]}))
    now = run_of((RECOVERY, "seconds", against_floor([0.05], [0.001])))

    (change,) = compare(now, before)
    assert (change.before, change.now) == (0.5, 0.05)


def test_steps_are_not_compared_because_they_may_be_next_to_nothing() -> None:
    run = run_of(("steps: a call: manager", "seconds", {"gaia-mcp": [0.0]}))

    assert compare(run, run) == []


def test_rows_that_only_one_run_has_are_left_out() -> None:
    assert compare(run_of((P50, "seconds", against_floor([1.0], [1.0]))), run_of()) == []
    assert compare(run_of((P50, "seconds", {"mcp": [1.0]})), run_of((P50, "seconds", {"mcp": [1.0]}))) == []
