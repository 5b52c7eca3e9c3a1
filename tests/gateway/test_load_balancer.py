"""Two gateways behind HAProxy, with the configuration of the documentation, of which one is killed under load."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.gateway_process import (
    ACCEPT,
    INITIALIZE,
    GatewayProcess,
    ask,
    call_headers,
    gateway_process,
    tool_call,
)
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
CONFIGURATION = Path(__file__).parents[2] / "docs" / "deployment" / "haproxy.cfg"

pytestmark = [pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed"), pytest.mark.process]

CLIENTS = 8
BEFORE, AFTER = 40, 200
"""Calls until one gateway is killed, and at least so many afterwards."""

FaultServer = Callable[..., dict[str, Any]]


@contextlib.contextmanager
def load_balancer(tmp_path: Path, gateways: list[GatewayProcess]) -> Iterator[int]:
    """HAProxy in front of gw1 and gw2; its port."""
    text = CONFIGURATION.read_text("utf-8")
    for number, gateway in enumerate(gateways, 1):
        text, count = re.subn(rf"(?m)^(    server gw{number}) \S+", rf"\1 127.0.0.1:{gateway.port}", text)
        assert count == 1
    with socket.create_server(("127.0.0.1", 0)) as listener:
        file = tmp_path / "haproxy.cfg"
        file.write_text(text.replace("bind :8765", f"bind fd@{listener.fileno()}"))
        assert HAPROXY is not None
        process = subprocess.Popen(
            [HAPROXY, "-db", "-f", str(file)], pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL
        )
        with process:
            port = listener.getsockname()[1]
            try:
                assert wait_until(lambda: ask(port, "GET", "/ready", None, {}).status == 200)
                yield port
            finally:
                process.terminate()


@contextlib.contextmanager
def two_gateways(
    tmp_path: Path, fault_server: FaultServer, *words: str, servers: dict[str, Any] | None = None
) -> Iterator[list[GatewayProcess]]:
    """gw1 and gw2, each with a server `it` of its own, and further `servers`."""
    with contextlib.ExitStack() as stack:
        running = []
        for name in ("gw1", "gw2"):
            config = tmp_path / f"{name}.json"
            entries = {"it": fault_server(state_file=tmp_path / name), **(servers or {})}
            config.write_text(json.dumps({"mcpServers": entries}))
            options = ("--config", str(config), "--name", name, "--drain-delay", "600", *words)
            running.append(stack.enter_context(gateway_process(*options)))
        for gateway in running:
            assert wait_until(lambda gateway=gateway: gateway.ask("GET", "/ready").status == 200)
        yield running


class Called(NamedTuple):
    text: str
    began: float
    is_good: bool


class Load:
    """Clients of the stateless era that call without a pause, each call with a text of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._calls: list[Called] = []
        self._stop = threading.Event()

    def run(self, client: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            text = f"{client}-{number}"
            began = time.monotonic()
            try:
                answer = ask(self._port, "POST", "/mcp", tool_call("it_echo", {"text": text}), call_headers("it_echo"))
                is_good = answer.status == 200 and answer.json["result"]["content"][0]["text"] == text
            except (OSError, http.client.HTTPException):
                is_good = False
            with self._lock:
                self._calls.append(Called(text, began, is_good))

    def stop(self) -> None:
        self._stop.set()

    @property
    def calls(self) -> list[Called]:
        with self._lock:
            return list(self._calls)


def executions(tmp_path: Path) -> Counter[str]:
    """How often each text reached a server."""
    return Counter(call.arguments["text"] for name in ("gw1", "gw2") for call in read_state(tmp_path / name).calls)


class Sessions:
    """Sessions at both gateways."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.found: dict[str, str] = {}
        assert wait_until(self._have_both)

    def initialize(self) -> str:
        opened = ask(self._port, "POST", "/mcp", INITIALIZE, ACCEPT)
        assert opened.status == 200
        return opened.headers["mcp-session-id"]

    def call(self, gateway: str) -> int:
        params = {"name": "it_echo", "arguments": {"text": "in a session"}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return ask(self._port, "POST", "/mcp", body, {**ACCEPT, "Mcp-Session-Id": self.found[gateway]}).status

    def _have_both(self) -> bool:
        session = self.initialize()
        self.found[session.partition(".")[0]] = session
        return self.found.keys() == {"gw1", "gw2"}


def test_a_killed_gateway_loses_its_sessions_and_no_call_that_was_not_written_to_it(
    home: Path, tmp_path: Path, fault_server: FaultServer
) -> None:
    with two_gateways(tmp_path, fault_server) as gateways, load_balancer(tmp_path, gateways) as port:
        load, sessions = Load(port), Sessions(port)
        for _ in range(3):
            assert sessions.call("gw1") == sessions.call("gw2") == 200
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(load.run, client) for client in range(CLIENTS)]
            try:
                assert wait_until(lambda: len(load.calls) >= BEFORE)
                gateways[0].signal(signal.SIGKILL)
                gateways[0].process.wait(PATIENCE)
                dead = time.monotonic()
                begun = len(load.calls)
                assert wait_until(lambda: len(load.calls) >= begun + AFTER)
            finally:
                load.stop()
        for one in running:
            one.result()
        assert sessions.call("gw1") == 404
        assert sessions.call("gw2") == 200
        assert sessions.initialize().startswith("gw2.")
        calls, executed = load.calls, executions(tmp_path)

    failed = [call for call in calls if not call.is_good]
    # Both gateways had calls before.
    assert any(call.arguments["text"] != "in a session" for call in read_state(tmp_path / "gw1").calls)
    # A call that began when the gateway was dead could not be written to it: the other one has answered.
    assert [call for call in failed if call.began >= dead] == []
    assert len(failed) <= CLIENTS
    assert {call.text for call in calls if call.is_good and executed[call.text] != 1} == set()
    # It may have run, and was not repeated.
    assert max((executed[call.text] for call in failed), default=0) <= 1


def is_avoided(load: Load, state: Path) -> bool:
    """Whether many calls go elsewhere."""
    before, calls = len(read_state(state).calls), len(load.calls)
    assert wait_until(lambda: len(load.calls) >= calls + 8 * CLIENTS)
    return len(read_state(state).calls) == before


def test_no_call_fails_while_a_gateway_is_told_to_end(home: Path, tmp_path: Path, fault_server: FaultServer) -> None:
    with two_gateways(tmp_path, fault_server) as gateways, load_balancer(tmp_path, gateways) as port:
        load = Load(port)
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(load.run, client) for client in range(CLIENTS)]
            try:
                assert wait_until(lambda: len(load.calls) >= BEFORE)
                gateways[0].signal(signal.SIGTERM)
                assert wait_until(lambda: gateways[0].ask("GET", "/ready").status == 503)
                opened = [ask(port, "POST", "/mcp", INITIALIZE, ACCEPT).status for _ in range(CLIENTS)]
                # Calls go to the gateway with fewer of them, so one that has none in a while gets no more.
                assert wait_until(lambda: is_avoided(load, tmp_path / "gw1"))
                gateways[0].signal(signal.SIGTERM)
                assert gateways[0].process.wait(PATIENCE) == 0
                begun = len(load.calls)
                assert wait_until(lambda: len(load.calls) >= begun + AFTER)
            finally:
                load.stop()
        for one in running:
            one.result()
        calls, executed = load.calls, executions(tmp_path)

    assert set(opened) == {200}
    assert [call for call in calls if not call.is_good] == []
    assert {call.text for call in calls if executed[call.text] != 1} == set()
