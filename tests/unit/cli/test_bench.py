"""`gaia mcp bench`, against the demo server; and what it counts with."""

import itertools
import re
import threading

import pytest

from gaia.cli.bench import Calls, histogram, one_by_one, together
from tests.unit.cli.fixture_types import Configure, Invoke, Json, Told

pytestmark = pytest.mark.slow

FEW = ("--calls", 40, "--callers", 2)


@pytest.mark.process
def test_the_demo_server_is_measured_without_being_asked_for_one(invoke_json: Invoke) -> None:
    document = invoke_json("bench", *FEW)

    assert (document["server"], document["tool"], document["callers"]) == ("demo", "echo", 2)
    for way in ("alone", "together"):
        figures = document[way]
        assert figures["calls"] == 40
        assert 0 < figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["max"] <= figures["seconds"]
        assert figures["calls_per_second"] == pytest.approx(40 / figures["seconds"])
    assert sum(bucket["calls"] for bucket in document["histogram"]) == 40
    raw = document["raw_pipe"]
    assert raw["ratio"] == pytest.approx(raw["supervised"]["median"] / raw["median"])


@pytest.mark.process
def test_people_get_a_table_and_a_histogram(invoke: Invoke) -> None:
    result = invoke("bench", *FEW)

    assert (result.exit_code, result.stderr) == (0, "")
    first, *lines = result.stdout.splitlines()
    assert first == "echo of demo: 40 by one caller, 40 by 2 callers"
    assert lines[0].split() == ["p50", "p95", "p99", "longest", "calls/s"]
    assert lines[1].startswith("one caller")
    assert lines[2].startswith("2 callers")
    assert any(line.endswith(tuple("0123456789")) and "█" in line for line in lines)
    # What is compared is named, and the figures agree with each other.
    assert lines[-3] == "Supervised next to a bare pipe, medians of 1000 calls each, taken in turns:"
    raw, supervised, more = (
        float(match[1]) * (1000 if match[2] == "ms" else 1)
        for match in re.finditer(r"([\d.]+) (µs|ms)", f"{lines[-2]}\n{lines[-1]}")
    )
    ratio = re.search(r"or ([\d.]+) times the bare pipe$", lines[-1])
    assert ratio is not None
    assert float(ratio[1]) == pytest.approx(supervised / raw, rel=0.05)
    assert more == pytest.approx(supervised - raw, abs=11)


class TestServersOfTheUser:
    @pytest.fixture(autouse=True)
    def configured(self, configure: Configure, demo_server: Json) -> None:
        configure(mine=demo_server)

    def test_are_called_as_is_said_by_one_caller_only_if_wanted(self, invoke_json: Invoke) -> None:
        given = ("--server", "mine", "--tool", "add", "--arguments", '{"a": 1, "b": 2}')
        document = invoke_json("bench", *given, *FEW)
        assert (document["server"], document["tool"], document["arguments"]) == ("mine", "add", {"a": 1, "b": 2})
        assert document["alone"]["calls"] == 40
        assert document["raw_pipe"] is None
        assert invoke_json("bench", *given, "--callers", 1, "--calls", 5)["together"] is None

    @pytest.mark.parametrize(
        ("tool", "given", "said"),
        [
            ("fail", '{"message": "out of paper"}', "the tool reported an error: out of paper"),
            ("crash", "{}", "exited with code 1"),
            ("add", '{"a": 1}', "missing argument 'b'"),
            ("sleep", '{"seconds": 60}', "was not answered within 2 s"),
        ],
    )
    def test_that_fail_end_it(self, tool: str, given: str, said: str, failed: Told) -> None:
        assert said in failed("bench", "--server", "mine", "--tool", tool, "--arguments", given, "--timeout", 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "mine"], "--server and --tool go together"),
        (["--tool", "echo"], "--server and --tool go together"),
        (["--arguments", "{}"], "--arguments: for a tool that --server and --tool name"),
        (["--server", "mine", "--tool", "echo"], "there is no server named 'mine'"),
        (["--server", "mine", "--tool", "echo", "--arguments", "[1]"], "expected a JSON object, got '[1]'"),
        (["--server", "mine", "--tool", "echo", "--arguments", "{"], "not valid JSON"),
        (["--calls", "0"], "--calls"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], said: str, refused: Told, configure: Configure) -> None:
    configure()
    assert said in refused("bench", *words)


def test_calls_one_by_one_end_with_the_last_one_or_with_the_time_but_one_is_made() -> None:
    made: list[int] = []
    calls = one_by_one(lambda: made.append(1), 7, seconds=60)
    assert len(calls.latencies) == len(made) == 7
    assert calls.seconds >= sum(calls.latencies)
    assert calls.rate == 7 / calls.seconds
    assert len(one_by_one(lambda: None, 1000, seconds=0).latencies) == 1


def test_callers_share_the_calls_and_are_really_at_once() -> None:
    callers: set[int] = set()
    calls = together(lambda: callers.add(threading.get_ident()), callers=4, most=40, seconds=60)
    assert (len(calls.latencies), len(callers)) == (40, 4)
    everybody = threading.Barrier(3)
    assert len(together(lambda: everybody.wait(10), callers=3, most=3, seconds=60).latencies) == 3


def test_calling_together_ends_with_the_first_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        together(lambda: 1 / 0, callers=3, most=1000, seconds=60)


def test_percentiles_are_latencies_that_were_measured() -> None:
    calls = Calls([0.003, 0.001, 0.002, 0.004], 1.0)
    assert [calls.percentile(share) for share in (0.0, 0.5, 0.99, 1.0)] == [0.001, 0.002, 0.004, 0.004]


@pytest.mark.parametrize("latencies", [[0.001], [0.001, 0.0011], [1e-6, 100.0], [0.00099, 0.001, 0.0010001]])
def test_histograms_lose_no_call_and_have_no_gap(latencies: list[float]) -> None:
    buckets = histogram(latencies)
    assert sum(bucket.calls for bucket in buckets) == len(latencies)
    assert all(before.high == after.low for before, after in itertools.pairwise(buckets))
    assert min(buckets[0].calls, buckets[-1].calls) > 0
    assert len(buckets) <= 20


def test_histograms_are_finer_where_latencies_are_close() -> None:
    (low, high, calls), *_ = histogram([0.00105, 0.0014])
    assert (low, high, calls) == (0.001, 0.00125, 1)
