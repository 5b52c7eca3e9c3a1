"""The process that starts servers: when there is one, and which."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client import MCPClient
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.fork_server import ForkServer, fork_server
from gaia.mcp.transports.reaped_process import _request
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Configure, Start, call, linux
from tests.waiting import PATIENCE, wait_until


@linux
class TestProcess:
    def test_it_stays_without_servers_while_it_is_held(self, fault_server: Configure) -> None:
        server = StdioTransport(**fault_server())
        first, second = object(), object()
        server.prepare(first)
        server.prepare(second)
        assert fork_server.pid is None
        fork_server.prepare(first)
        pid = fork_server.pid
        assert pid is not None
        for _ in range(2):
            assert server.connect()
            assert fork_server.pid == pid
            server.disconnect()
        for _ in range(2):
            server.release(first)
            fork_server.let_go(first)
            assert fork_server.pid == pid
        server.release(second)
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

    def test_servers_that_are_started_at_once_have_the_same(self, fault_server: Configure, start: Start) -> None:
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


pytestmark = linux

if sys.platform == "linux":
    from gaia.mcp.transports import fork_server_process

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1)


class TestRequest:
    @given(st.lists(TEXTS, min_size=1), st.dictionaries(NAMES, TEXTS), st.integers(1, 50))
    def test_it_arrives_as_it_was_in_pieces_of_any_size(
        self, argv: list[str], environment: dict[str, str], size: int
    ) -> None:
        data = _request(argv, environment)
        receiving, sending = socket.socketpair()
        with receiving, sending:

            def send() -> None:
                for start in range(0, len(data), size):
                    sending.sendall(data[start : start + size])

            sender = threading.Thread(target=send)
            sender.start()
            request = fork_server_process.read_request(receiving.fileno())
            sender.join()
        assert request == (
            [os.fsencode(argument) for argument in argv],
            {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        )

    @pytest.mark.parametrize("part", [0, 5, 8, 20])
    def test_there_is_none_from_a_host_that_is_gone(self, part: int) -> None:
        receiving, sending = socket.socketpair()
        with receiving:
            sending.sendall(_request(["program", "argument"], {})[:part])
            sending.close()
            assert fork_server_process.read_request(receiving.fileno()) is None


class TestDescendants:
    @pytest.mark.process
    def test_they_are_found_without_those_that_are_spared(self) -> None:
        shell = ["sh", "-c", "sleep 300 & echo $!; wait"]
        with subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            sleeper = int(process.stdout.readline())
            assert fork_server_process.descendants() >= {process.pid, sleeper}
            assert not fork_server_process.descendants({process.pid}) & {process.pid, sleeper}
            assert sleeper not in fork_server_process.descendants({sleeper})
            fork_server_process.send({sleeper, process.pid}, 9)

    def test_a_name_with_brackets_is_no_obstacle(self) -> None:
        assert os.getpid() not in fork_server_process.descendants()


class TestWholeProcess:
    """With the interpreter's usual start, so that the coverage of the processes is measured."""

    @pytest.fixture(autouse=True)
    def usual_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        code = "import sys; from gaia.mcp.transports import fork_server_process as f; f.main(int(sys.argv[1]))"
        monkeypatch.setattr("gaia.mcp.transports.fork_server._ARGUMENTS", ["-c", code])

    def test_a_server_that_leaves(self, start: Start) -> None:
        transport = start(child="daemon")
        (pid,) = call(transport, "children")
        transport.disconnect()
        assert not psutil.pid_exists(pid)

    def test_servers_that_stay(self, quick: None, start: Start) -> None:
        transports = [start(ignore_eof=True, ignore_sigterm=True, child="escaped") for _ in range(2)]
        pids = [pid for transport in transports for pid in call(transport, "children")]
        for transport in transports:
            transport.disconnect()
        assert not any(map(psutil.pid_exists, pids))

    @pytest.mark.process
    def test_what_is_no_program(self, tmp_path: os.PathLike[str]) -> None:
        program = os.path.join(tmp_path, "program")
        with open(program, "wb") as file:
            file.write(b"\x7fELF")
        os.chmod(program, 0o700)
        assert not StdioTransport(program, []).connect()

    def test_a_reaper_that_is_killed(self, start: Start) -> None:
        transport = start()
        process = psutil.Process(call(transport, "pid"))
        reaper = process.parent()
        assert reaper is not None
        reaper.kill()
        process.wait(PATIENCE)
        assert transport._channel is not None
        assert transport._channel.ending(PATIENCE) == Ending()
