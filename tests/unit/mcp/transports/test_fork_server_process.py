"""The fork server and its reapers, in processes of their own; and their parts, called in this one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.reaped_process import _request
from tests.unit.mcp.transports.conftest import call, linux
from tests.waiting import PATIENCE

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

    def test_a_server_that_leaves(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(child="daemon")
        (pid,) = call(transport, "children")
        transport.disconnect()
        assert not psutil.pid_exists(pid)

    def test_servers_that_stay(self, quick: None, start: Callable[..., StdioTransport]) -> None:
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

    def test_a_reaper_that_is_killed(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        process = psutil.Process(call(transport, "pid"))
        reaper = process.parent()
        assert reaper is not None
        reaper.kill()
        process.wait(PATIENCE)
        assert transport._channel is not None
        assert transport._channel.ending(PATIENCE) == Ending()
