"""The process that starts servers: when there is one, and which."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.fork_server import ForkServer, fork_server
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Configure, linux
from tests.waiting import wait_until


@linux
class TestProcess:
    def test_it_comes_with_the_first_server_and_goes_with_the_last(self, fault_server: Configure) -> None:
        servers = [StdioTransport(**fault_server()) for _ in range(2)]
        assert fork_server.pid is None
        for server in servers:
            assert server.connect()
        pid = fork_server.pid
        assert pid is not None
        assert is_alive(pid)
        servers[0].disconnect()
        assert fork_server.pid == pid
        servers[1].disconnect()
        assert fork_server.pid is None
        assert not is_alive(pid)

    def test_it_stays_without_servers_while_it_is_held(self, fault_server: Configure) -> None:
        server = StdioTransport(**fault_server())
        first, second = object(), object()
        server.prepare(first)
        server.prepare(second)
        assert fork_server.pid is None
        assert server.connect()
        pid = fork_server.pid
        server.disconnect()
        assert server.connect()
        assert fork_server.pid == pid
        server.disconnect()
        for _ in range(2):
            server.release(first)
            assert fork_server.pid == pid
        server.release(second)
        assert fork_server.pid is None

    def test_it_can_be_there_before_the_first_server(self, fault_server: Configure) -> None:
        holder = object()
        fork_server.prepare(holder)
        pid = fork_server.pid
        assert pid is not None
        server = StdioTransport(**fault_server())
        assert server.connect()
        assert fork_server.pid == pid
        server.disconnect()
        fork_server.let_go(holder)
        assert fork_server.pid is None
        assert not is_alive(pid)

    def test_a_server_that_is_restarted_has_the_same(self, fault_server: Configure) -> None:
        with MCPClient.from_config("fault", {**fault_server(), "restart": {"initialDelay": 0.01}}) as client:
            pid, server = fork_server.pid, client.status.pid
            assert server is not None
            os.kill(server, signal.SIGKILL)
            assert wait_until(lambda: client.status.restarts == 1 and client.is_connected())
            assert client.status.pid != server
            assert fork_server.pid == pid
        assert fork_server.pid is None

    def test_servers_that_are_started_at_once_have_the_same(
        self, fault_server: Configure, start: Callable[..., StdioTransport]
    ) -> None:
        servers = [StdioTransport(**fault_server()) for _ in range(8)]
        threads = [threading.Thread(target=server.connect) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(server.is_connected() for server in servers)
        assert len(fork_server._processes) == 1
        for server in servers:
            server.disconnect()
        assert fork_server.pid is None


class TestWithoutIt:
    @pytest.mark.parametrize(("attribute", "value"), [("executable", ""), ("frozen", True), ("platform", "win32")])
    def test_nothing_is_started_where_no_python_can_be(
        self, monkeypatch: pytest.MonkeyPatch, attribute: str, value: object
    ) -> None:
        monkeypatch.setattr(sys, attribute, value, raising=False)
        assert ForkServer().give([]) is None

    @linux
    @pytest.mark.process
    def test_a_python_that_cannot_be_started_is_logged(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        assert ForkServer().give([]) is None
        assert "guard_start_failed" in caplog.text
