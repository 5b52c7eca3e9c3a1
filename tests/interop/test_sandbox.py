"""Servers that others wrote, in the sandboxes that the documentation gives for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from tests.sandboxes import require


@pytest.mark.parametrize(
    ("name", "tool", "arguments"),
    [
        ("time", "get_current_time", {"timezone": "UTC"}),
        ("filesystem", "list_directory", {"path": "{folder}"}),
    ],
)
def test_it_is_called_in_its_sandbox(
    name: str,
    tool: str,
    arguments: dict[str, str],
    configure_real_server: Callable[[str], dict[str, Any]],
    connect: Callable[..., MCPClient],
    tmp_path: Path,
) -> None:
    require("bubblewrap")
    entry = configure_real_server(name)
    folder = str(tmp_path / name)
    client = connect(entry, name, sandbox={"write": [folder], "memory": "1G"})
    values = {key: value.format(folder=folder) for key, value in arguments.items()}
    answer = client.call_tool(tool, values)
    assert not answer.get("isError"), answer
    assert "error" not in answer
