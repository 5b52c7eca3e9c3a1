"""The examples of the documentation, run as their readers do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def _nothing_is_written(home: Path, tmp_path: Path) -> Iterator[None]:
    """The examples leave the home directory and the working directory as they are."""
    yield
    assert [*home.rglob("*"), *tmp_path.rglob("*")] == []


def run(example: str, endpoint: ScriptedLLM, *arguments: str) -> list[str]:
    """The lines that the example prints."""
    environment = {**os.environ, "GAIA_LLM_BASE_URL": endpoint.base_url, "GAIA_LLM_MODEL": "scripted"}
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_agent_run() -> None:
    replies = [
        Reply("First the sum.", [("mcp_demo_add", {"a": 19, "b": 2})]),
        Reply(calls=[("double", {"number": 21})]),
        Reply("It is 42."),
    ]
    with scripted_llm(*replies) as endpoint:
        lines = run("agent_run.py", endpoint)
    assert lines[0] == "✓ demo (6 tools): add, echo, sleep, fail, crash, counter"
    assert "  Tool: add (demo)" in lines
    assert lines[-4:] == [
        "3 steps, 45 tokens",
        "mcp_demo_add({'a': 19, 'b': 2}): success",
        "double({'number': 21}): success",
        "It is 42.",
    ]


def test_agent_confirmation() -> None:
    calls = [("mcp_demo_add", {"a": 1, "b": 1}), ("mcp_demo_counter", {}), ("mcp_demo_crash", {})]
    with scripted_llm(Reply(calls=calls), Reply("Crash was refused.")) as endpoint:
        lines = run("agent_confirmation.py", endpoint)
    assert lines == [
        "counter (demo) {}: yes",
        "crash (demo) {}: no",
        "mcp_demo_add: success, mcp_demo_counter: success, mcp_demo_crash: refused",
        "Crash was refused.",
    ]


def test_agent_cancel() -> None:
    with scripted_llm(Reply(calls=[("mcp_demo_sleep", {"seconds": 3600})])) as endpoint:
        lines = run("agent_cancel.py", endpoint, "0.5")
    # A slow machine may not have come as far as the call.
    assert lines in (["cancelled: mcp_demo_sleep cancelled"], ["cancelled: "])
