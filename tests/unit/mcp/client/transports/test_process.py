"""One server process and everything it starts: how it begins, how it ended, and how all of it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.transports import StdioTransport
from gaia.mcp.client.transports.process import ServerProcess
from gaia.mcp.client.transports.stdio_channel import StdioChannel
from gaia.mcp.errors import StartFailed
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.unit.mcp.client.transports.conftest import PATIENCE, Configure, Json, Listener, call, posix


class TestStarting:
    @pytest.mark.process
    @posix
    def test_an_executable_that_is_no_program_is_no_connection(self, tmp_path: Path) -> None:
        (tmp_path / "server").write_bytes(b"\x7fELF")
        (tmp_path / "server").chmod(0o700)
        with pytest.raises(StartFailed, match="could not be started"):
            StdioTransport(str(tmp_path / "server"), []).open(Listener(), "test")

    @pytest.mark.process
    @pytest.mark.parametrize("settings", [{"args": ["a\0b"]}, {"args": [], "env": {"A": "a\0b"}}, {"args": [5]}])
    def test_what_no_program_can_be_given_is_no_connection(self, settings: Json) -> None:
        assert StdioTransport(sys.executable, **settings).connect() is False

    @posix
    def test_a_server_leads_a_session_and_group_of_its_own(self, start: Callable[..., StdioTransport]) -> None:
        """So that Ctrl-C in our terminal does not reach it."""
        pid = call(start(), "pid")
        assert os.getpgid(pid) == os.getsid(pid) == pid


class TestEnding:
    @pytest.mark.parametrize("waitid", [True, False], ids=["waitid", "no waitid"])
    @pytest.mark.parametrize(
        ("exit_at_start", "ending", "text"),
        [
            ({"code": 0}, Ending(exit_code=0), "exited with code 0"),
            ({"code": 42}, Ending(exit_code=42), "exited with code 42"),
            pytest.param({"signal": 9}, Ending(signal="SIGKILL"), "was killed by SIGKILL", marks=posix),
        ],
    )
    def test_it_says_how_the_process_ended(
        self,
        fault_server: Configure,
        monkeypatch: pytest.MonkeyPatch,
        waitid: bool,
        exit_at_start: Json,
        ending: Ending,
        text: str,
    ) -> None:
        """Without waitid (macOS before Python 3.13), too."""
        if not waitid:
            monkeypatch.delattr(os, "waitid", raising=False)
        listener = Listener()
        channel = StdioTransport(**fault_server(exit_at_start=exit_at_start)).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        assert channel.ending(PATIENCE) == ending
        assert channel.close(0.0) == ending
        assert str(ending) == text
        assert ending.clean is (ending.exit_code == 0)

    def test_there_is_none_while_the_server_runs(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, _ = open_channel()
        assert channel.ending(0.0) is None
        assert channel.is_alive()

    @posix
    def test_it_is_unknown_if_the_application_reaps_our_children(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object) -> None:
            raise ChildProcessError

        monkeypatch.setattr(os, "waitid", gone)
        channel, listener = open_channel(exit_at_start=None)
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending()
        assert str(Ending()) == "closed its output"


class TestShutdown:
    """The sequence of the specification: end of input, SIGTERM, SIGKILL."""

    def test_a_good_server_leaves_at_the_end_of_its_input(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        channel, _ = open_channel(state_file=tmp_path / "state")
        assert channel.close(PATIENCE) == Ending(exit_code=0)
        assert read_state(tmp_path / "state").ends == ("eof",)

    @posix
    def test_one_that_stays_is_sent_sigterm_after_its_grace(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        channel, _ = open_channel(ignore_eof=True, state_file=tmp_path / "state")
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    @posix
    def test_one_that_survives_sigterm_is_killed(
        self, quick: None, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        state_file = tmp_path / "state"
        channel, _ = open_channel(ignore_eof=True, ignore_sigterm=True, state_file=state_file)
        assert channel.close(0.1) == Ending(signal="SIGKILL")
        assert read_state(state_file).ends[-1] == "sigterm"

    @posix
    def test_one_that_has_been_stopped_hears_sigterm_all_the_same(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, _ = open_channel()
        assert channel.pid is not None
        os.kill(channel.pid, signal.SIGSTOP)
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    def test_the_time_between_is_what_the_specification_wants(self) -> None:
        from gaia.mcp.client.transports import process, standalone

        assert process._TERMINATE_SECONDS == 5.0
        assert standalone._DEFAULT_GRACE == 2.0

    def test_one_that_has_ended_already_is_only_cleaned_up_after(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, listener = open_channel()
        channel.popen.kill()
        assert listener.ended.wait(PATIENCE)
        began = time.monotonic()
        channel.close(PATIENCE)
        assert time.monotonic() - began < PATIENCE

    @pytest.mark.parametrize("keeps_pipes", [False, True], ids=["", "holding the pipes"])
    @pytest.mark.parametrize("child", ["same_group", "own_session", "daemon"])
    @posix
    def test_what_it_started_ends_with_it(
        self, start: Callable[..., StdioTransport], child: str, keeps_pipes: bool
    ) -> None:
        transport = start(child=child, child_keeps_pipes=keeps_pipes)
        (pid,) = call(transport, "children")
        assert is_alive(pid)
        transport.disconnect()
        assert not is_alive(pid)

    @posix
    def test_so_does_what_only_starts_while_the_others_are_ended(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        channel, _ = open_channel(child="own_session")
        late: list[subprocess.Popen[bytes]] = []
        look = ServerProcess._strays

        def look_and_start(process: ServerProcess) -> list[psutil.Process]:
            found = look(process)
            if not late:
                environment = psutil.Process(found[0].pid).environ()
                sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
                late.append(subprocess.Popen(sleeper, env=environment, start_new_session=True))
            return found

        monkeypatch.setattr(ServerProcess, "_strays", look_and_start)
        channel.close(PATIENCE)
        assert not is_alive(late[0].pid)
        late[0].wait()
