"""The page of the documentation, its tables and its plots."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import page
from benchmarks.plots import plot
from benchmarks.results import Run
from tests.unit.benchmarks.runs import run_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run() -> Run:
    values = {"raw-pipe": [1e-5, 1e-5], "gaia-mcp": [2e-5, 2e-5], "mcp": [2e-4, 3e-4]}
    run = run_of(
        ("latency: 64 B, two cores: p50", "seconds", values),
        ("latency: 64 B, two cores: p99", "seconds", {**values, "gaia-mcp": [4e-5, 4e-5]}),
        ("footprint: threads: 50 servers", "count", {"gaia-mcp": [251.0], "mcp": [2.0]}),
        ("recovery: after kill -9: next good answer", "seconds", {"gaia-mcp": [0.5]}),
    )
    run.versions = {"gaia-mcp": "gaia-mcp 0.1.0", "mcp": "mcp 2.3.0"}
    run.absent = {"fastmcp": "pip said no"}
    run.failures = {"recovery": {"mcp": "no good answer within 3 s"}}
    return run


class TestPage:
    def test_tells_what_was_run_who_is_missing_and_where_a_peer_is_ahead(self, run: Run, tmp_path: Path) -> None:
        page.write(run, tmp_path)

        text = (tmp_path / "benchmarks.md").read_text()
        for said in ("$ python -m benchmarks\n", "cores: 2", "mcp 2.3.0"):
            assert said in text
        assert "- fastmcp, async is missing: pip said no" in text
        assert "- mcp, async is out: no good answer within 3 s" in text
        (line,) = (line for line in text.splitlines() if line.startswith("| footprint: threads: 50 servers"))
        assert "behind, see below" in line
        assert "- Each server has threads of its own" in text
        assert Run.load(tmp_path / "benchmarks.json") == run

    def test_shows_a_plot_for_each_table_and_none_of_an_older_run(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "benchmarks-old.svg").write_text("")
        page.write(run, tmp_path)

        plots = sorted(file.name for file in tmp_path.glob("*.svg"))
        assert plots == [
            "benchmarks-footprint-threads.svg",
            "benchmarks-latency-64-b-two-cores.svg",
            "benchmarks-recovery-after-kill-9.svg",
        ]
        text = (tmp_path / "benchmarks.md").read_text()
        assert all(f"]({name})" in text for name in plots)


def test_steps_are_lines_of_a_table_without_a_plot(tmp_path: Path) -> None:
    run = run_of(
        ("steps: a call: the pipe", "seconds", {"gaia-mcp": [9e-6], "gaia-mcp-http": [2e-5]}),
        ("steps: a call: a span", "seconds", {"gaia-mcp": [-1e-6]}),
    )
    page.write(run, tmp_path)

    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.table(run.rows)]
    assert lines[0] == ["", "**gaia-mcp**", "gaia-mcp, over HTTP"]
    assert lines[2:] == [["the pipe", "**9 µs**", "20 µs"], ["a span", "**-1 µs**", "–"]]  # noqa: RUF001
    assert not list(tmp_path.glob("*.svg"))
    assert "![" not in (tmp_path / "benchmarks.md").read_text()


def test_a_section_of_which_nothing_could_be_measured_says_why() -> None:
    run = run_of()
    run.failures = {"http": {"gaia-mcp": "no C compiler"}}

    assert "## Streamable HTTP\n\n- gaia-mcp is out: no C compiler\n" in page.text(run)


def test_tables_show_how_many_times_the_floor_a_figure_is(run: Run) -> None:
    lines = page.table(run.rows[:2])

    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["", "p50", "p99"]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [
        "**gaia-mcp**",
        "**20 µs, 2.00x**",
        "**40 µs, 4.00x**",
    ]


def test_figures_are_compared_with_the_floor_of_their_row() -> None:
    values = {"raw-socket": [1e-5], "gaia-mcp": [5e-5]}
    lines = page.table(run_of(("http: JSON answers, 64 B, two cores: p50", "seconds", values)).rows)

    assert lines[2].split("|")[1].strip() == "raw socket"
    assert lines[3].split("|")[2].strip() == "**50 µs, 5.00x**"


class TestPlots:
    def test_have_a_dot_for_each_figure(self, run: Run) -> None:
        picture = ET.fromstring(plot(run.rows[:2]))

        titles = [title.text for title in picture.iterfind(f"{SVG}g/{SVG}title")]
        assert titles == ["p50: 10 µs", "p99: 10 µs", "p50: 20 µs", "p99: 40 µs", "p50: 250 µs", "p99: 250 µs"]

    def test_put_larger_figures_further_right_and_all_inside(self, run: Run) -> None:
        picture = ET.fromstring(plot(run.rows[:1]))

        places = [float(dot.attrib["cx"]) for dot in picture.iterfind(f"{SVG}g/{SVG}circle")]
        assert places == sorted(places)
        assert 0 < min(places) < max(places) <= float(picture.attrib["width"])

    def test_show_nothing_at_all_as_the_smallest(self) -> None:
        rows = run_of(("footprint: memory of its helpers: 1 server", "bytes", {"gaia-mcp": [9.0], "mcp": [0.0]})).rows

        assert ET.fromstring(plot(rows)).tag == f"{SVG}svg"
