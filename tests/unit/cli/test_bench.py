"""`gaia mcp bench`, against the demo server."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

FEW = ("--calls", 40, "--callers", 2)


@pytest.mark.process
def test_the_demo_server_is_measured_without_being_asked_for_one(invoke_json: Callable[..., Any]) -> None:
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


def test_people_get_a_table_and_a_histogram(run: Callable[..., Any]) -> None:
    result = run("bench", *FEW)

    assert (result.returncode, result.stderr) == (0, "")
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
    def configured(self, configure: Callable[..., Path], demo_server: dict[str, Any]) -> None:
        configure(mine=demo_server)

    def test_are_called_as_is_said(self, invoke_json: Callable[..., Any]) -> None:
        given = ("--server", "mine", "--tool", "add", "--arguments", '{"a": 1, "b": 2}')
        document = invoke_json("bench", *given, *FEW)

        assert (document["server"], document["tool"], document["arguments"]) == ("mine", "add", {"a": 1, "b": 2})
        assert document["alone"]["calls"] == 40
        assert document["raw_pipe"] is None

    def test_may_be_called_by_one_caller_only(self, invoke_json: Callable[..., Any]) -> None:
        document = invoke_json(
            "bench", "--server", "mine", "--tool", "echo", "--arguments", '{"text": ""}', "--callers", 1, "--calls", 5
        )

        assert document["together"] is None

    @pytest.mark.parametrize(
        ("tool", "given", "said"),
        [
            ("fail", '{"message": "out of paper"}', "the tool reported an error: out of paper"),
            ("crash", "{}", "exited with code 1"),
            ("add", '{"a": 1}', "missing argument 'b'"),
            ("sleep", '{"seconds": 60}', "was not answered within 2 s"),
        ],
    )
    def test_that_fail_end_it(self, tool: str, given: str, said: str, invoke: Callable[..., Any]) -> None:
        result = invoke("bench", "--server", "mine", "--tool", tool, "--arguments", given, "--timeout", 2)

        assert result.exit_code == 1
        assert said in result.stderr


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
def test_what_makes_no_sense_is_refused(
    words: list[str], said: str, invoke: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    configure()
    result = invoke("bench", *words)

    assert result.exit_code == 2
    assert said in result.stderr
