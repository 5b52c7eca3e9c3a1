"""`use_cassette`: recorded servers or real ones, by a mode, as the fixture `mcp_cassette` has it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from gaia.mcp import MCPClientManager
from gaia.mcp.errors import JsonRpcError
from gaia.testing.cassette import Cassette, RecordedExchange
from gaia.testing.recording import record
from gaia.testing.replaying import Replay, replay

RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all"]

RECORD_MODES: tuple[RecordMode, ...] = get_args(RecordMode)


def default_mode() -> RecordMode:
    """``none`` where the environment variable ``CI`` is set, as in continuous integration; elsewhere ``once``."""
    return "once" if os.environ.get("CI", "").lower() in ("", "0", "false") else "none"


@contextmanager
def use_cassette(
    path: str | os.PathLike[str], servers: Mapping[str, Mapping[str, Any]], *, mode: RecordMode | None = None
) -> Iterator[MCPClientManager]:
    """A manager of `servers`, whose answers come from the cassette `path`, or are recorded there.

    `mode` says which: ``"none"`` only replays, and a missing file is an error; ``"once"`` records if there is no file;
    ``"new_episodes"`` replays, and asks the real servers for what was not recorded, which is then added; ``"all"``
    records anew. None is ``"none"`` where the environment variable ``CI`` is set, and ``"once"`` elsewhere.

    Raises FileNotFoundError for a missing file, `CassetteMismatch` on leaving for a request that was not recorded, and
    ValueError for another mode.
    """
    mode = default_mode() if mode is None else mode
    if mode not in RECORD_MODES:
        raise ValueError(f"mode: must be one of {', '.join(RECORD_MODES)}, got {mode!r}")
    file = Path(path)
    if mode == "all" or (mode != "none" and not file.exists()):
        with MCPClientManager(servers) as manager, record(manager, file):
            yield manager
        return
    if not file.exists():
        raise FileNotFoundError(
            f"there is no cassette {file}, and the mode 'none' asks no real server; record it first where the servers "
            "can be reached: mode 'once', or pytest --mcp-record=once"
        )
    if mode == "new_episodes":
        with _extended(file, servers) as manager:
            yield manager
        return
    with replay(file) as replayed, MCPClientManager(replayed) as manager:
        yield manager


@contextmanager
def _extended(file: Path, servers: Mapping[str, Mapping[str, Any]]) -> Iterator[MCPClientManager]:
    """Replay `file`; the real servers start at the first request that it does not have."""
    with tempfile.TemporaryDirectory() as folder:
        new = _NewEpisodes(servers, Path(folder) / "new.json")
        cassette = Cassette.read(file)
        with Replay(file, cassette, None, new.ask) as replayed, MCPClientManager(replayed) as manager:
            try:
                yield manager
            finally:
                recorded = new.end()
        if recorded is None:
            return
        for name, server in recorded.servers.items():
            added = [exchange for start in server.starts for exchange in start.exchanges if exchange.is_call]
            last = cassette.servers[name].starts[-1]
            last.exchanges = sorted([*last.exchanges, *added], key=lambda exchange: exchange.key)
        cassette.write(file)


class _NewEpisodes:
    """Asks real servers, one request after the other, and records that."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], file: Path) -> None:
        self._servers = servers
        self._file = file
        # A recording begins and ends in one thread, and the threads of the replayed servers must not wait for others.
        self._thread = ThreadPoolExecutor(1, "mcp-new-episodes")
        self._open: Any = None

    def ask(self, server: str, method: str, params: dict[str, Any]) -> RecordedExchange:
        """The real server's answer."""
        return self._thread.submit(self._ask, server, method, params).result()

    def end(self) -> Cassette | None:
        """What was recorded; None if no server was asked."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()
        return Cassette.read(self._file) if self._file.exists() else None

    def _ask(self, server: str, method: str, params: dict[str, Any]) -> RecordedExchange:
        if self._open is None:
            self._open = self._recorded()
            self._manager: MCPClientManager = self._open.__enter__()
        client = self._manager.get_client(server)
        if client is None:
            raise LookupError(f"server {server!r} could not be started to record what is missing")
        try:
            return RecordedExchange(request=method, params=params, result=client.request(method, params))
        except JsonRpcError as error:
            return RecordedExchange(request=method, params=params, error={"code": error.code, "message": error.message})

    @contextmanager
    def _recorded(self) -> Iterator[MCPClientManager]:
        with MCPClientManager(self._servers) as manager, record(manager, self._file):
            yield manager

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
