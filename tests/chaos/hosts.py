"""Running `tests.chaos.host_program`, and looking at what it leaves behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import waiting
from tests.chaos import host_program
from tests.chaos.faults import ScriptedServer
from tests.servers.processes import is_alive, wait_for_end
from tests.waiting import wait_until

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
PATIENCE = waiting.PATIENCE + 60.0
"""Seconds. A host waits for its servers for `waiting.PATIENCE`."""


class RunningHost:
    """A host with servers of its own, started in `folder`. `close` ends it and whatever it has left."""

    def __init__(self, folder: Path, seed: int, start_fault: str = "well", *, stderr: int | None = None) -> None:
        self.servers = [ScriptedServer("one", folder), ScriptedServer("two", folder, "stateless")]
        entries = {
            server.name: server.configuration(healthInterval=0.5, healthTimeout=2.0, timeout=5)
            for server in self.servers
        }
        for server in self.servers:
            server.from_now_on(start_fault)
        self.configuration = folder / "servers.json"
        self.configuration.write_text(json.dumps({"mcpServers": entries}))
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(host_program.__file__), str(folder), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._guards: set[int] = set()
        self.tell("ready")

    def tell(self, command: str) -> Json:
        """Have it do something; returns its answer."""
        self.send(command)
        return self.hear()

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def hear(self) -> Json:
        """Its next answer."""
        line = self._lines.get(timeout=PATIENCE)
        assert line, "the host has ended"
        answer: Json = json.loads(line)
        assert "exception" not in answer, answer["exception"]
        if answer.get("guard"):
            self._guards.add(answer["guard"])
        return answer

    def wait_for_calls(self, count: int) -> None:
        """Return when its servers have been called so often since now."""
        before = self._calls()
        assert wait_until(lambda: self._calls() >= before + count, PATIENCE)

    def wait_for_reason(self, text: str) -> None:
        """Return when no server runs, for a reason that contains `text`."""

        def is_known() -> bool:
            return all(state != "ready" and text in (reason or "") for state, reason in self.tell("states").values())

        assert wait_until(is_known, PATIENCE), self.tell("states")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def running_servers(self) -> list[int]:
        """The process ids of the servers, as far as they run."""
        return [server.state.pids[-1] for server in self.servers if is_alive(server.state.pids[-1])]

    def kill_servers(self) -> None:
        for pid in self.running_servers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def left_behind(self) -> list[int]:
        """The processes that it started and that are still there after a while."""
        started = list(self._guards)
        for server in self.servers:
            started += [*server.state.pids, *server.state.children]
        return [pid for pid in started if not wait_for_end(pid)]

    def repeated(self) -> list[str]:
        """Calls that reached servers more often than they may."""
        written = Counter((call.tool, call.arguments["text"]) for server in self.servers for call in server.state.calls)
        return [text for (tool, text), count in written.items() if count > (2 if tool.startswith("safe_") else 1)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        for pid in [*self._guards, *(pid for server in self.servers for pid in server.state.pids)]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _calls(self) -> int:
        return sum(len(server.state.calls) for server in self.servers)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")
