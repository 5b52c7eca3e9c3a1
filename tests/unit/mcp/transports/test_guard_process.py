"""The guard process: what it does, called in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.transports import guard_process
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from tests.unit.mcp.transports.conftest import posix
from tests.waiting import PATIENCE

pytestmark = posix


class TestProcess:
    @given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(2, 5))), st.lists(st.integers(0, 200)))
    def test_it_knows_whom_it_has_been_told_of_however_the_messages_are_cut(
        self, events: list[tuple[str, int]], positions: list[int]
    ) -> None:
        messages = [f"+ {pid} mark{pid}\n" if event == "+" else f"- {pid}\n" for event, pid in events]
        stream = "".join(messages).encode()
        edges = [0, *sorted(min(position, len(stream)) for position in positions), len(stream)]
        chunks = iter([*filter(None, map(lambda start, stop: stream[start:stop], edges, edges[1:])), b""])
        expected: dict[int, str] = {}
        for event, pid in events:
            if event == "+":
                expected[pid] = f"mark{pid}"
            else:
                expected.pop(pid, None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guard_process, "_input_ready", lambda: True)
            patch.setattr(guard_process, "os", SimpleNamespace(read=lambda *_: next(chunks)))
            assert guard_process.watch(host=1) == expected

    def test_a_host_that_is_not_the_parent_any_more_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard_process, "_input_ready", lambda: False)
        assert guard_process.watch(host=os.getpid()) == {}

    def test_it_ends_groups(self, sleeper: subprocess.Popen[bytes]) -> None:
        # The sleeper is a child of ours: until it is waited for its group is still there.
        waiter = threading.Thread(target=sleeper.wait)
        waiter.start()
        guard_process.end({sleeper.pid: "no-such-mark"})
        waiter.join(PATIENCE)
        assert sleeper.returncode == -signal.SIGTERM
        assert not guard_process.signal_group(sleeper.pid, 0)

    def test_it_has_nothing_to_do_when_all_were_released(self) -> None:
        guard_process.end({})

    @pytest.mark.process
    @pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only /proc shows environments")
    def test_it_finds_processes_by_their_mark(self) -> None:
        # All processes of the machine are looked at, and another run of the tests may be one of them.
        mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        other = f"other-{mark}".encode()
        environment = {**os.environ, MARK_VARIABLE: f"outer.{mark}.inner"}
        command = [sys.executable, "-I", "-S", "-c", "print(flush=True); import time; time.sleep(300)"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                assert guard_process.marked_processes({mark.encode(), other}) == [process.pid]
                assert guard_process.marked_processes({other}) == []
            finally:
                process.kill()
