"""The results that are kept in the documentation, and the few of them in the README."""

from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import page, readme
from benchmarks.results import Run
from tests.unit.benchmarks.runs import run_of

PROJECT = Path(program.__file__).parents[1]
MARKED = (
    "# Title\n<!-- benchmarks: written by `python -m benchmarks --update-docs` -->{}<!-- end of benchmarks -->\nEnd\n"
)


@pytest.fixture
def run() -> Run:
    run = run_of(
        ("latency: 64 B, two cores: p50", "seconds", {"raw-pipe": [4e-5], "gaia-mcp": [8e-5], "mcp": [2e-4]}),
        ("recovery: after kill -9: next good answer", "seconds", {"gaia-mcp": [0.5]}),
    )
    run.failures = {"recovery": {"mcp": "no good answer within 3 s"}}
    return run


class TestReadme:
    def test_gets_a_line_for_each_contender(self, run: Run) -> None:
        lines = readme.with_figures(run, MARKED.format("")).splitlines()

        cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[3:8]}
        assert cells["**gaia-mcp**"][0] == "**80 µs**"
        assert cells["**gaia-mcp**"][-1] == "**500 ms**"
        assert cells["mcp, async"][-1] == "never"
        assert cells["raw pipe"] == ["40 µs", "not measured"]

    def test_shows_the_raw_socket_as_the_floor_over_http(self, run: Run) -> None:
        run.row("http", "JSON answers, 64 B, two cores", "p50", "seconds").values = {
            "raw-socket": [3e-5],
            "gaia-mcp": [9e-5],
        }
        run.failures["http"] = {"mcp": "no answer"}
        lines = readme.with_figures(run, MARKED.format("")).splitlines()

        cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[3:8]}
        assert cells[""] == ["a call of 64 B", "over HTTP", "after `kill -9`"]
        assert cells["raw pipe, raw socket"] == ["40 µs", "30 µs", "not measured"]
        assert cells["mcp, async"] == ["200 µs", "not measured", "never"]

    def test_keeps_everything_else(self, run: Run) -> None:
        text = readme.with_figures(run, MARKED.format("\nold figures\n"))

        assert text.startswith("# Title\n<!-- benchmarks")
        assert text.endswith("<!-- end of benchmarks -->\nEnd\n")
        assert "old figures" not in text
        assert readme.with_figures(run, text) == text

    def test_without_a_place_for_them_is_refused(self, run: Run) -> None:
        with pytest.raises(ValueError, match="found 0"):
            readme.with_figures(run, "# Title\n")


class TestOurOwn:
    """They are written by one command, and never by hand."""

    @pytest.fixture
    def kept(self) -> Run:
        return Run.load(PROJECT / "docs" / "benchmarks.json")

    def test_page_shows_the_kept_results(self, kept: Run) -> None:
        assert (PROJECT / "docs" / "benchmarks.md").read_text() == page.text(kept)

    def test_readme_shows_the_kept_results(self, kept: Run) -> None:
        text = (PROJECT / "README.md").read_text()

        assert readme.with_figures(kept, text) == text


def test_results_can_be_judged_again_without_measuring(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_PROJECT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(MARKED.format(""))
    run.save(tmp_path / "run.json")

    assert program.main(["--load", str(tmp_path / "run.json"), "--check", "--update-docs"]) == 0
    assert "2.00 times the raw pipe" in capsys.readouterr().out
    assert Run.load(tmp_path / "docs" / "benchmarks.json") == run
    assert "**80 µs**" in (tmp_path / "README.md").read_text()
