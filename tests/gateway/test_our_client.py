"""Our own client, in both eras and over both transports, uses a server through a gateway."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.supervision.events import ResourceUpdated, ServerLog, ToolsChanged
from tests.gateway.gateway_process import gateway_process
from tests.recorder import Recorder
from tests.serving.served import Served, command, environment, http_server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

REVISIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture(scope="module")
def agent(starts_programs: None) -> Iterator[Served]:
    with http_server("tests.gateway.combination_agent:CombinationAgent", env={"NAME": "files"}) as served:
        yield served


@contextlib.contextmanager
def gateway(transport: str, agent: Served, folder: Path) -> Iterator[dict[str, Any]]:
    """A gateway before the agent, as an entry of a client's configuration."""
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"files": {"url": agent.url}}}))
    if transport == "stdio":
        line = command("mcp", "gateway", "--stdio", "--config", str(file))
        yield {"command": line[0], "args": line[1:], "env": {"PYTHONPATH": environment()["PYTHONPATH"]}}
        return
    with gateway_process("--config", str(file)) as running:
        path = "/mcp/files" if transport == "one server" else "/mcp"
        yield {"url": f"http://127.0.0.1:{running.port}{path}"}


# `tests/contract` has both eras over both transports in one process.
@pytest.mark.parametrize(("transport", "protocol"), [("stdio", "legacy"), ("http", "auto"), ("one server", "legacy")])
def test_it_uses_everything(transport: str, protocol: str, agent: Served, tmp_path: Path) -> None:
    told, is_one = Recorder(), transport == "one server"
    prefix = "" if is_one else "files_"
    with (
        gateway(transport, agent, tmp_path) as entry,
        MCPClientManager(
            {},
            on_elicitation=lambda request: request.accept({"name": "Cleo"}),
            on_sampling=lambda request: request.answer("Paris", model="small"),
            roots=[tmp_path],
        ) as manager,
    ):
        manager.subscribe(told)
        client = manager.add_server("gateway", {**entry, "protocol": protocol})
        assert client.protocol_version == REVISIONS[protocol]
        assert client.instructions == ("Use with care." if is_one else "## files\n\nUse with care.")
        assert f"{prefix}echo" in [tool.name for tool in client.list_tools()]

        def said(tool: str, **arguments: Any) -> Any:
            result = client.call_tool(f"{prefix}{tool}", arguments)
            assert not result.get("isError"), result
            return result["structuredContent"]["said"]

        assert said("echo", text="höre") == "höre"
        assert client.call_tool(f"{prefix}add", {"a": 1, "b": 2})["structuredContent"] == {"sum": 3}
        assert client.call_tool(f"{prefix}fail")["isError"]
        assert said("ask_person") == "Cleo"
        assert said("ask_twice") == "Cleo and Cleo"
        assert said("ask_model") == "Paris"
        assert said("ask_roots") == [tmp_path.as_uri()]

        progress: list[float] = []
        client.call_tool(f"{prefix}count", {}, on_progress=lambda done, _total, _message: progress.append(done))
        assert progress == [1, 2, 3]
        assert client.read_resource("files:///numbers/7")["contents"][0]["text"] == "number 7"
        assert "Ada" in str(client.get_prompt(f"{prefix}greet", {"who": "Ada"})["messages"])

        client.set_logging_level("warning")
        client.subscribe_resource("files:///text")

        def heard() -> bool:
            said("log")
            said("change_text")
            return bool(told.of(ServerLog)) and bool(told.of(ResourceUpdated))

        assert wait_until(heard)
        assert {event.data for event in told.of(ServerLog)} == {"loud"}
        told.events.clear()
        said("change_tools")
        told.wait_for(ToolsChanged)
