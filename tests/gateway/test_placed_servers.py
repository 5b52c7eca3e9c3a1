"""A gateway in front of servers that are placed elsewhere: what their clients see is that of local servers."""

import sys
from typing import Any

import psutil
import pytest
from mcp import Client

from gaia.mcp.client import MCPClientManager
from tests.gateway.running import running
from tests.gateway.test_questions import CALLBACKS, HANDSHAKE, each_combination, said
from tests.servers import asking_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

PLACED = {"placement": {"engine": "process"}}


@each_combination
async def test_a_placed_server_asks_the_client(mode: str, revision: str) -> None:
    server = {"command": sys.executable, "args": [asking_server.__file__], "protocol": revision, **PLACED}
    async with running({"asks": server}) as url, Client(f"{url}/mcp/asks", mode=mode, **CALLBACKS) as client:
        if revision == HANDSHAKE:
            assert await said(client, "ask_form") == "Cleo is 30"
            assert await said(client, "ask_model") == "small: Paris"
        else:
            assert await said(client, "greet") == "Paris Cleo, file:///here, asked"
            assert await said(client, "count", {"rounds": 3}) == "3"


def test_a_server_moves_to_another_place_and_back(demo_server: dict[str, Any]) -> None:
    with MCPClientManager({"demo": demo_server}) as manager:

        def host() -> int | None:
            placement = manager.status()[0].placement
            return None if placement is None else placement.host_pid

        assert host() is None
        hosts = []
        for lease, is_placed in ((10, True), (20, True), (0, False)):
            applied = manager.apply(
                {
                    "demo": {
                        **demo_server,
                        **({"placement": {**PLACED["placement"], "lease": lease}} if is_placed else {}),
                    }
                }
            )
            assert applied.replaced == ("demo",)
            hosts.append(host())
            assert not manager.call_tool("mcp_demo_add", {"a": 1, "b": 2}).is_error
        assert hosts[2] is None
        assert hosts[0] != hosts[1]
        assert manager.apply({}).removed == ("demo",)
    assert not any(host is not None and psutil.pid_exists(host) for host in hosts)


async def test_each_session_has_a_host_of_its_own(demo_server: dict[str, Any]) -> None:
    async def count(client: Client) -> Any:
        return (await client.call_tool("counter", {})).structured_content

    servers = {"demo": {**demo_server, **PLACED, "instances": "per-session"}}
    async with (
        running(servers) as url,
        Client(f"{url}/mcp/demo", mode="legacy") as one,
        Client(f"{url}/mcp/demo", mode="legacy") as other,
    ):
        assert await count(one) == {"value": 1}
        assert await count(one) == {"value": 2}
        assert await count(other) == {"value": 1}
