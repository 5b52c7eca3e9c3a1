"""`record`: writes the requests to a manager's servers, and the answers, to a cassette."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.supervision.events import ServerState
from gaia.runtime.redaction import Redactor, mask_strings
from gaia.testing.cassette import Cassette, RecordedServer
from gaia.testing.start_recorder import Recording, StartRecorder

M = TypeVar("M", bound=MCPClientManager | AsyncMCPClientManager)

_SETTLE_SECONDS = 30.0
"""How long a recording waits for starting or restarting servers when it begins or ends."""

_SETTINGS = (
    *("enabledTools", "disabledTools", "timeout", "maxTimeout", "resetTimeoutOnProgress"),
    *("outputValidation", "protocol", "restart"),
)
"""The keys of an entry that also a cassette's client needs. The other keys tell how to reach the server."""


@contextmanager
def record(manager: M, path: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> Iterator[M]:
    """Record the requests to the servers of `manager` and their answers; `gaia.testing.replay` plays them back.

    ``with MCPClientManager(servers) as manager, record(manager, "tests/cassettes/time.json"): …``

    Each server is recorded from a fresh start: a server that is ready gets a new process (`MCPClient.restart`). Leaving
    the block without an exception writes the file, after waiting at most 30 seconds for restarting servers.

    The file is readable for its owner only. Secrets from the servers' entries are masked in it, and so are `secrets`:
    texts from servers or from arguments of calls. The same calls and answers give the same file.

    Raises RuntimeError if `manager` is being recorded already, `ServerUnavailable` (a RuntimeError) for a server that
    cannot be restarted, and ValueError for one text as `secrets`. Several threads may use `manager` meanwhile. Entering
    and leaving the block wait in this thread, even if it runs an event loop.
    """
    if isinstance(secrets, str):
        raise ValueError("secrets: give a list of texts; of one text, each character would be masked")  # noqa: TRY004 - as for other arguments
    file = Path(path).absolute()
    recorded = manager.sync if isinstance(manager, AsyncMCPClientManager) else manager
    recorders, readiness = recorded._engine.recorders, recorded._engine.readiness
    if recorders.new is not None:
        raise RuntimeError("this manager is being recorded already; leave that recording first")
    recording = Recording()
    try:
        readiness.wait(lambda: not _starting(recorded), _SETTLE_SECONDS)
        recorders.new = recording.begin
        _restart_all(recorded)
        yield manager
        readiness.wait(lambda: not _starting(recorded) and recording.is_settled(_ready(recorded)), _SETTLE_SECONDS)
    finally:
        recorders.new = None
        with recording.lock:
            recording.stopped = True
    _cassette(recording.starts, recorded.config.get_entries(), secrets).write(file)


def _starting(manager: MCPClientManager) -> bool:
    return any(status.state in (ServerState.STARTING, ServerState.RESTARTING) for status in manager.status())


def _ready(manager: MCPClientManager) -> set[str]:
    return {status.name for status in manager.status() if status.state is ServerState.READY}


def _restart_all(manager: MCPClientManager) -> None:
    for name in manager.list_servers():
        client = manager.get_client(name)
        if client is not None and client.is_connected() and not client.restart():
            raise ServerUnavailable(f"server {name!r} cannot be recorded from a fresh start: {client.last_error}")


def _cassette(
    starts: Mapping[str, list[StartRecorder]], entries: Mapping[str, Any], secrets: Iterable[str]
) -> Cassette:
    redactors: list[Callable[[str], str]] = [Redactor(secrets)]
    redactors += [start.redact for of_server in starts.values() for start in of_server]

    def redact(text: str) -> str:
        for mask in redactors:
            text = mask(text)
        return text

    servers = {}
    # In the order of the configuration, in which their tools are listed. The order of starts varies.
    for name in dict.fromkeys([*(name for name in entries if name in starts), *starts]):
        entry = entries.get(name)
        settings = {key: entry[key] for key in _SETTINGS if key in entry} if isinstance(entry, dict) else {}
        found = [recorded for start in starts[name] if (recorded := start.start(redact)) is not None]
        servers[name] = RecordedServer(settings=mask_strings(settings, redact), starts=found)
    return Cassette(cassette=Cassette.VERSION, servers=servers)
