"""`ConformanceAgent` behind ``gaia mcp gateway``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gateway.gateway_process import gateway_process
from tests.serving.served import command, environment, http_server

AGENT = "tests.conformance.agent:ConformanceAgent"

BEHIND = ("stdio", "http")
"""How the gateway reaches the agent."""


@contextlib.contextmanager
def gateway_before_agent(behind: str, folder: Path) -> Iterator[str]:
    """The URL at which the agent's tools have their own names. `folder` is for the gateway's configuration."""
    with contextlib.ExitStack() as stack:
        entry: dict[str, Any]
        if behind == "stdio":
            line = command("mcp", "serve", AGENT)
            entry = {"command": line[0], "args": line[1:], "env": {"PYTHONPATH": environment()["PYTHONPATH"]}}
        else:
            entry = {"url": stack.enter_context(http_server(AGENT)).url}
        file = folder / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"agent": entry}}))
        gateway = stack.enter_context(gateway_process("--config", str(file)))
        yield f"http://127.0.0.1:{gateway.port}/mcp/agent"
