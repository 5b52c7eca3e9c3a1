"""``python -m gaia.mcp.gateway.host``: a gateway with one server, for a program on another machine.

It reads a `Launch` from its standard input and answers `Ready` on its standard output. It ends when its standard input
ends, unless it is shared and its server was ready, and when no owner has been heard of for the time of the lease.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec
import psutil

from gaia import __version__
from gaia.mcp.gateway.gateway import Gateway
from gaia.mcp.placement.engine import Launch, Ready
from gaia.mcp.placement.lease import LEASE_PATH, OWNER, Beat, HostState, Owners, fingerprints
from gaia.mcp.supervision.events import Event, ServerState
from gaia.mcp.transports import fork_server
from gaia.mcp.transports.base import InProcessServer
from gaia.mcp.transports.sandbox import Sandbox
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.extras import missing
from gaia.serving.guards import Receive, Refused, Scope, Send
from gaia.serving.options import HttpOptions
from gaia.serving.responses import JSON, HttpRequest, Responder, refuse

_LEASE_IS_OVER = "the host of this server has ended: it had not heard of its program for the time of the lease"
_NOT_RESTARTED = 'it has ended, and restart.restart is "never"'
_REFUSE_SECONDS = 0.5
_JOIN_SECONDS = 0.001
_LONGEST_CALL_SECONDS = 24 * 3600.0
_MAX_CONNECTIONS = 4096
_PROCESS_KEYS = frozenset({"command", "args", "env", "cwd", "inheritEnv", "sandbox"})


class _HostedServer(InProcessServer):
    """The server of a host. Its values are expanded, so they are used as they are."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def transport(self, timeout: float) -> StdioTransport:
        launch, entry = self._launch, self._launch.entry
        sandbox = entry.get("sandbox", False)
        settings = msgspec.convert(sandbox, Sandbox) if isinstance(sandbox, dict) else Sandbox() if sandbox else None
        return StdioTransport(
            entry["command"],
            entry.get("args"),
            entry.get("env"),
            timeout=timeout,
            cwd=entry.get("cwd"),
            inherit_env=entry.get("inheritEnv", False),
            sandbox=lambda: settings,
            expand=lambda: (entry.get("args"), entry.get("env"), launch.secrets),
            **launch.limits,
        )


class Host:
    """Everything but the constructor and `run` belongs to the event loop."""

    def __init__(self, launch: Launch, now: Callable[[], float] = time.monotonic) -> None:
        self._launch = launch
        self._now = now
        self._owners = Owners(launch.lease, now())
        rest = {key: value for key, value in launch.entry.items() if key not in _PROCESS_KEYS}
        self.gateway = Gateway({launch.name: {**_HostedServer(launch), **rest}}, max_body=sys.maxsize)
        self._fingerprints = fingerprints(launch.entry, launch.token)
        self._never_restarts = launch.entry.get("restart", {}).get("restart") == "never"
        self._url = ""
        self._is_announced = False
        self._has_lost_server = False
        self._is_ending = False

    def run(self) -> None:
        # Imported here: `main` tells which packages are missing.
        from gaia.serving.http import run_http

        launch = self._launch
        options = HttpOptions(
            host=launch.listen,
            port=0,
            token=launch.token,
            certificate=launch.certificate,
            allow_hosts=("*",),
            max_body=sys.maxsize,
            max_connections=_MAX_CONNECTIONS,
            shutdown_grace=1.0,
        )
        run_http(self._application, options, self._listening, self._stopping, direct=self)

    # See `RequestHandler`.

    def takes(self, path: str) -> bool:
        return self.gateway.endpoint.takes(path)

    def is_probe(self, path: str) -> bool:
        return path == LEASE_PATH

    def refusal(self, head: HttpRequest, held: list[Callable[[], None]]) -> Refused | None:
        return self.gateway.endpoint.refusal(head, held)

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        # A request that is refused with this status goes to the next host, see `HttpChannel.host_ended`.
        # This process may have been stopped for a while, so the clock is read before each request.
        if self._owners.have_left(self._now()):
            refuse(responder, Refused(HTTPStatus.GONE, _LEASE_IS_OVER))
            self._end()
        elif request.path == LEASE_PATH:
            self._lease(request, responder)
        elif self._has_lost_server:
            refuse(responder, Refused(HTTPStatus.GONE, _NOT_RESTARTED))
        else:
            self.gateway.endpoint.handle(request, responder)

    def _lease(self, request: HttpRequest, responder: Responder) -> None:
        owner, now = request.headers.get(OWNER.lower().encode(), b"").decode("latin-1"), self._now()
        if request.method == "DELETE":
            self._owners.leave(owner)
        elif request.method == "POST":
            try:
                beat = msgspec.json.decode(request.body, type=Beat)
            except msgspec.MsgspecError as error:
                refuse(responder, Refused(400, str(error)))
                return
            if differing := self._differing(beat):
                responder.finish(409, JSON, msgspec.json.encode(differing))
                return
            self._owners.hear(owner, beat, now)
        responder.finish(200, JSON, msgspec.json.encode(self._state(now)))
        if self._owners.have_left(now):
            self._end()

    def _differing(self, beat: Beat) -> list[str]:
        given = beat.settings or self._fingerprints
        keys = sorted({*given, *self._fingerprints})
        return [key for key in keys if not hmac.compare_digest(given.get(key, ""), self._fingerprints.get(key, ""))]

    def _state(self, now: float) -> HostState:
        status = self.gateway.manager.status()[0]
        return HostState(
            state=status.state.value,
            pid=status.pid,
            generation=status.generation,
            restarts=status.restarts,
            owners=self._owners.count(now),
            clock=now,
            memory=_memory(status.pid),
        )

    # The beginning and the end.

    def _listening(self, url: str) -> None:
        loop = asyncio.get_running_loop()
        self._url = url

        def changed(_event: Event) -> None:
            loop.call_soon_threadsafe(self._look)

        self.gateway.manager.subscribe(changed)
        loop.add_reader(0, self._read_input)

    def _read_input(self) -> None:
        if not os.read(0, 65536):
            asyncio.get_running_loop().remove_reader(0)
            if not (self._launch.is_shared and self._is_announced):
                self._end()

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gateway(scope, receive, send)

    def _look(self) -> None:
        """Tell that the server is ready, or why its first start has failed. Its end may be that of the host."""
        status = self.gateway.manager.status()[0]
        is_ready = status.state is ServerState.READY
        if self._is_announced:
            if not is_ready and self._never_restarts and not self._has_lost_server:
                self._has_lost_server = True
                # A call that comes at this moment gets an answer, and not a broken connection.
                asyncio.get_running_loop().call_later(_REFUSE_SECONDS, self._end)
            return
        if not is_ready and status.last_error is None:
            return
        if is_ready:
            client = self.gateway.manager.get_client(self._launch.name)
            if client is None:
                # The manager enters a server into its table a moment after it is ready.
                asyncio.get_running_loop().call_later(_JOIN_SECONDS, self._look)
                return
            # Each call comes with its own deadline, and the program has used the timeout of the entry for it.
            client._engine.session.timeout = _LONGEST_CALL_SECONDS
            self._watch()
            # As for a gateway that runs as a service: scanning the objects of the start takes a tenth of each call.
            gc.freeze()
        self._is_announced = True
        port, problem = int(self._url.rpartition(":")[2]), None if is_ready else status.last_error
        _answer(port, problem)
        if problem is not None:
            self._end()

    def _watch(self) -> None:
        now = self._now()
        if self._owners.have_left(now):
            self._end()
        else:
            # The first beat brings the end of the lease forward.
            pause = min(max(0.01, self._owners.until - now), self._launch.lease)
            asyncio.get_running_loop().call_later(pause, self._watch)

    def _end(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            os.kill(os.getpid(), signal.SIGTERM)

    def _stopping(self) -> None:
        self.gateway.drain()
        self.gateway.give_up()


def _memory(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        server = psutil.Process(pid)
        return sum(one.memory_info().rss for one in (server, *server.children(recursive=True)))
    except psutil.Error:
        return None


def _answer(port: int, problem: str | None) -> None:
    ready = Ready(port=port, pid=os.getpid(), node=socket.gethostname(), problem=problem)
    os.write(1, msgspec.json.encode(ready) + b"\n")
    # Nobody reads any more what is written there.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (data := os.read(0, 65536)):
        line += data
    return line


def _why_unusable(launch: Launch) -> str | None:
    if launch.version != __version__:
        return f"gaia-mcp {__version__} is installed there, and {launch.version} here; install the same version"
    absent = missing("gateway", "uvicorn", "starlette", "httptools")
    return None if absent is None else f"a host needs {absent}"


def main() -> None:
    launch = msgspec.json.decode(_read_line(), type=Launch)
    if (problem := _why_unusable(launch)) is not None:
        _answer(0, problem)
        return
    # The engine reads to the end of this pipe: then no process of the server is left, however this one has ended.
    fork_server.inherited.append(os.dup(1))
    Host(launch).run()


if __name__ == "__main__":
    main()
