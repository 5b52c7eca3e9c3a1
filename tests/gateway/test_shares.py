"""One client of a gateway that runs takes all that it can get. The others, and the probes, go on."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.gateway.access.clients_file import add_client
from tests.gateway.gateway_process import ACCEPT, GatewayProcess, gateway_process
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONNECTIONS = 16


@pytest.fixture
def gateway(home: Path, tmp_path: Path, fault_server: Any) -> Iterator[GatewayProcess]:
    """With two clients, whose tokens are in `tokens`."""
    config, clients = tmp_path / "servers.json", tmp_path / "clients.json"
    config.write_text(json.dumps({"mcpServers": {"it": fault_server()}}))
    tokens = {name: add_client(clients, name) for name in ("quiet", "busy")}
    document = json.loads(clients.read_text())
    clients.write_text(json.dumps({**document, "limits": {"streamsPerClient": 4, "bodyBytesPerClient": 5_000_000}}))
    words = ("--config", str(config), "--clients", str(clients), "--max-connections", str(CONNECTIONS))
    with gateway_process(*words) as running:
        assert wait_until(lambda: running.ask("GET", "/ready").status == 200)
        running.tokens = tokens  # type: ignore[attr-defined]
        yield running


@contextlib.contextmanager
def opened(gateway: GatewayProcess, heads: list[str]) -> Iterator[list[socket.socket]]:
    """Connections that have sent these, of which nothing more comes."""
    with contextlib.ExitStack() as stack:
        connections = []
        for head in heads:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE))
            connection.sendall(head.encode())
            connections.append(connection)
        yield connections


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(4096).split(b" ")[1])


def goes_on(gateway: GatewayProcess) -> None:
    """The other client is served, and probes are answered."""
    for path in ("/health", "/ready"):
        gateway.token = None
        assert gateway.ask("GET", path).status == 200
    gateway.token = gateway.tokens["quiet"]  # type: ignore[attr-defined]
    for number in range(3):
        answer = gateway.call("it_echo", {"text": str(number)}).json
        assert answer["result"]["content"][0]["text"] == str(number)


def as_busy(gateway: GatewayProcess) -> str:
    gateway.token = gateway.tokens["busy"]  # type: ignore[attr-defined]
    return f"Host: localhost\r\nAuthorization: Bearer {gateway.token}\r\n"


def streams_of_one_client(gateway: GatewayProcess) -> None:
    own = as_busy(gateway)
    assert gateway.call("it_echo", {"text": "x"}).status == 200
    session = gateway.open_session().headers["mcp-session-id"]
    head = f"GET /mcp HTTP/1.1\r\n{own}Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
    with opened(gateway, [head] * 6) as streams:
        assert [status_of(stream) for stream in streams] == [200] * 4 + [429] * 2
        goes_on(gateway)


def connections_of_one_client_with_requests_that_are_not_answered(gateway: GatewayProcess) -> None:
    own = as_busy(gateway)
    params = {"name": "it_sleep", "arguments": {"seconds": 60}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    session = gateway.open_session().headers["mcp-session-id"]
    heads = [
        f"POST /mcp HTTP/1.1\r\n{own}Accept: {ACCEPT['Accept']}\r\nContent-Type: application/json\r\n"
        f"Mcp-Session-Id: {session}\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        for text in (body.replace('"id": 1', f'"id": {number}') for number in range(2, 2 + CONNECTIONS))
    ]
    with opened(gateway, heads) as connections:
        assert {status_of(connection) for connection in connections[CONNECTIONS // 2 :]} == {429}
        goes_on(gateway)


def connections_of_no_client(gateway: GatewayProcess) -> None:
    goes_on(gateway)
    with opened(gateway, ["POST /mcp HTTP/1.1\r\nHost: localhost\r\n"] * 3 * CONNECTIONS):
        goes_on(gateway)


def large_bodies_of_one_client_that_do_not_end(gateway: GatewayProcess) -> None:
    own = as_busy(gateway)
    head = (
        f"POST /mcp HTTP/1.1\r\n{own}Accept: {ACCEPT['Accept']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: 3000000\r\n\r\n"
    )
    with opened(gateway, [head + " " * 100_000] * 2) as (first, second):
        first.settimeout(0.2)
        assert status_of(second) == 429
        with pytest.raises(TimeoutError):
            first.recv(1)
        goes_on(gateway)


def test_a_client_that_takes_all_that_it_can_get_leaves_the_others_theirs(gateway: GatewayProcess) -> None:
    for attack in (
        streams_of_one_client,
        connections_of_one_client_with_requests_that_are_not_answered,
        connections_of_no_client,
        large_bodies_of_one_client_that_do_not_end,
    ):
        attack(gateway)
        assert wait_until(lambda: gateway.ask("GET", "/health").status == 200)
