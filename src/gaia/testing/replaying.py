"""`replay`: servers from a cassette, under the same supervision as real ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from gaia.runtime.clock import Clock
from gaia.testing.cassette import Cassette, RecordedExchange
from gaia.testing.mismatch import CassetteMismatch
from gaia.testing.replayed_server import ReplayedServer

AskServer: TypeAlias = Callable[[str, str, dict[str, Any]], RecordedExchange]


def replay(path: str | os.PathLike[str], *, clock: Clock | None = None) -> Replay:
    """The servers of a cassette that `gaia.testing.record` has written, as a configuration in memory.

    ``with replay("tests/cassettes/time.json") as servers, MCPClientManager(servers) as manager: …``

    Pass it to `MCPClientManager`, `MCPClientMixin` or `AsyncMCPClientManager` in place of the servers. No process is
    started and no network is used. `clock`, such as a `FakeClock`, is the clock of the servers' clients; by default it
    is the system's.

    Raises FileNotFoundError if there is no such file, and ConfigError (a ValueError) for a file that is not a cassette.
    """
    return Replay(Path(path), Cassette.read(Path(path)), clock)


class Replay(Mapping[str, Mapping[str, Any]]):
    """The entries of servers by name that `replay` returns. As a context manager it calls `check` on leaving.

    Each request gets the recorded answer to the same request: equal requests in their order, others in any order, so
    that several threads can call at once. A server that ended in the recording ends here too: after the calls that it
    left unanswered, or, without such calls, after all other requests of that start. It is restarted like any other
    server. A cassette is played once; another test reads it again.

    All methods may be called from any thread.
    """

    def __init__(self, file: Path, cassette: Cassette, clock: Clock | None, ask: AskServer | None = None) -> None:
        """``ask(server, method, params)`` answers requests that were not recorded; None: they are mismatches."""
        self._file = file
        self._mismatches: list[str] = []
        self._entries: dict[str, dict[str, Any]] = {
            name: {
                **ReplayedServer(
                    f"{file}, server {name!r}",
                    server,
                    self._mismatches.append,
                    clock,
                    None if ask is None else functools.partial(ask, name),
                ),
                **server.settings,
            }
            for name, server in cassette.servers.items()
        }

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Replay of {os.fspath(self._file)!r}: {', '.join(self._entries) or 'no servers'}>"

    @property
    def mismatches(self) -> list[str]:
        """The requests so far that were not recorded, each with the difference."""
        return list(self._mismatches)

    def check(self) -> None:
        """Raise `CassetteMismatch` (an AssertionError) if a server received a request that was not recorded.

        The call itself failed with the same text, which an agent may have shown to its model.
        """
        if mismatches := self.mismatches:
            raise CassetteMismatch("\n\n".join(mismatches))

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.check()
        else:
            # A mismatch has probably caused the error.
            for mismatch in self.mismatches:
                error.add_note(mismatch)
