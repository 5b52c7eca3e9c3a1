"""What is exported of calls of every kind is what was exported before, to the last byte."""

import json
from pathlib import Path

import pytest

from tests.telemetry.recorded_calls import as_text, record


@pytest.mark.process
def test_spans_and_metrics_are_what_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = Path(__file__).with_name("recorded_spans.json").read_text(encoding="ascii")
    expected, found = json.loads(text), json.loads(as_text(record(monkeypatch, tmp_path)))
    assert found.keys() == expected.keys()
    for section, parts in expected.items():
        for part, lines in parts.items():
            assert found[section][part] == lines, f"{part} of {section}"
