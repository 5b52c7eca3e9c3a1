from typing import Any

import psutil
import pytest

from gaia.cli.demo_step import Step, list_text, nothing_left, show_step


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
