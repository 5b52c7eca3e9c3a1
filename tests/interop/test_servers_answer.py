"""The servers that others wrote start and answer here, over bare pipes: when a client test fails, it is the client."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.raw_session import RawSession

Call = tuple[str, Callable[[Path], dict[str, Any]], str]

SAMPLE_CALLS: dict[str, Call] = {
    "time": ("get_current_time", lambda _folder: {"timezone": "UTC"}, '"timezone": "UTC"'),
    "git": ("git_status", lambda folder: {"repo_path": str(folder)}, "No commits yet"),
    "fetch": ("fetch", lambda _folder: {"url": "http://127.0.0.1:9/"}, "127.0.0.1"),
    "sqlite": ("list_tables", lambda _folder: {}, "[]"),
    "python-sdk": ("echo", lambda _folder: {"text": "hello"}, "hello"),
    "fastmcp": ("echo", lambda _folder: {"text": "hello"}, "hello"),
    "typescript-sdk": ("echo", lambda _folder: {"text": "hello"}, "hello"),
    "everything": ("echo", lambda _folder: {"message": "hello"}, "Echo: hello"),
    "filesystem": ("list_directory", lambda folder: {"path": str(folder)}, "[FILE] here.txt"),
    "memory": (
        "create_entities",
        lambda _folder: {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]},
        "Ada",
    ),
    "sequential-thinking": (
        "sequentialthinking",
        lambda _folder: {"thought": "hm", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
        '"thoughtNumber": 1',
    ),
}
"""Server → tool, its arguments, and a part of the text that it answers."""


def open_session(config: dict[str, Any]) -> RawSession:
    return RawSession([config["command"], *config["args"]], env={**os.environ, **config.get("env", {})})


@pytest.mark.parametrize("name", SAMPLE_CALLS)
def test_it_lists_tools_answers_and_ends_with_its_input(
    name: str, configure_real_server: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    tool, arguments, answer = SAMPLE_CALLS[name]
    config = configure_real_server(name)
    (tmp_path / name / "here.txt").touch()
    # Starting one takes longer than all that is asked of it.
    with open_session(config) as session:
        assert session.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
        assert session.request("tools/list")["result"]["tools"]
        assert answer in session.call_for_text(tool, arguments(tmp_path / name))
        session.close_stdin()
        assert session.exit_code() == 0
