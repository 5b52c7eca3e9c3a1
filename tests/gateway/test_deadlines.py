"""Deadlines of calls that pass gateways: a call is not executed after its caller has given it up."""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallTimeout
from tests.gateway.gateway_process import GatewayProcess, gateway_process
from tests.waiting import PATIENCE

SERVER = Path(__file__).parents[1] / "servers" / "timed_server.py"

_TIMEOUT = 1.0
_CALLS = 24


@contextlib.contextmanager
def chain(folder: Path, hops: int) -> Iterator[list[GatewayProcess]]:
    """Gateways behind one another, the first one for the client; the last one has the server."""
    with contextlib.ExitStack() as stack:
        gateways: list[GatewayProcess] = []
        entry: dict[str, object] = {"command": sys.executable, "args": ["-P", str(SERVER), str(folder / "executed")]}
        for number in range(hops):
            config = folder / f"{number}.json"
            config.write_text(json.dumps({"mcpServers": {"timed": entry}}), encoding="utf-8")
            gateway = stack.enter_context(gateway_process("--config", str(config)))
            gateways.insert(0, gateway)
            entry = {"url": f"http://127.0.0.1:{gateway.port}/mcp/timed"}
        yield gateways


@pytest.mark.slow
@pytest.mark.usefixtures("starts_programs")
@pytest.mark.parametrize(("hops", "stopped"), [(1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("protocol", ["handshake", "stateless"])
def test_a_gateway_that_was_stopped_executes_no_call_late(
    tmp_path: Path, hops: int, stopped: int, protocol: str
) -> None:
    with chain(tmp_path, hops) as gateways:
        url = f"http://127.0.0.1:{gateways[0].port}/mcp/timed"
        client = MCPClient.from_config("far", {"url": url, "protocol": protocol})
        with client:
            assert client.call_tool("note", {"text": "first"})["isError"] is False
            deadlines = {}

            def submit(text: str) -> object:
                deadlines[text] = time.monotonic() + _TIMEOUT
                return client.submit_tool("note", {"text": text}, timeout=_TIMEOUT)

            before = [submit(f"before-{number}") for number in range(_CALLS)]
            gateways[stopped].signal(signal.SIGSTOP)
            during = [submit(f"during-{number}") for number in range(_CALLS)]
            try:
                for call in during:
                    assert isinstance(call.exception(PATIENCE), CallTimeout)
                for call in before:
                    call.exception(PATIENCE)
            finally:
                gateways[stopped].signal(signal.SIGCONT)
            # By its answer, the gateway has read what came before it, and so has the server.
            assert client.call_tool("note", {"text": "last"}, timeout=PATIENCE)["isError"] is False
    executed = [line.split() for line in (tmp_path / "executed").read_text(encoding="utf-8").splitlines()]
    assert [text for text, at in executed if float(at) > deadlines.get(text, float("inf"))] == []
    assert {text for text, _ in executed} >= {"first", "last"}
