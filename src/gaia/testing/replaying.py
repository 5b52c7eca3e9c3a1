"""`replay`: servers from a cassette, under the same supervision as real ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gaia.runtime.clock import Clock
from gaia.testing.cassette import Cassette
from gaia.testing.mismatch import CassetteMismatch
from gaia.testing.replayed_server import ReplayedServer


def replay(path: str | os.PathLike[str], *, clock: Clock | None = None) -> Replay:
    """The servers of a cassette that `gaia.testing.record` has written, as a configuration in memory.

    ``with replay("tests/cassettes/time.json") as servers, MCPClientManager(servers) as manager: …``

    Pass it to `MCPClientManager`, `MCPClientMixin` or `AsyncMCPClientManager` in place of the servers. No process is
    started and the network is not used. `clock`, such as a `FakeClock`, gives the time to the clients of the servers;
    by default it is the system's.

    Raises FileNotFoundError if there is no such file, and ConfigError (a ValueError) for a file that is no cassette.
    """
    return Replay(Path(path), Cassette.read(Path(path)), clock)


class Replay(Mapping[str, Mapping[str, Any]]):
    """What `replay` returns: entries of servers by name. As a context manager it calls `check` on leaving.

    Each request gets the answer of the same request in the recording: equal requests in their order, others in any
    order, so that several threads can call at once. A server that ended in the recording ends here too: as soon as the
    calls have come that it left unanswered; if there were none, as soon as everything else of that start was requested.
    It is restarted like any other. Each cassette is played once: another test reads it again.

    All methods may be called from any thread.
    """

    def __init__(self, file: Path, cassette: Cassette, clock: Clock | None) -> None:
        self._file = file
        self._mismatches: list[str] = []
        self._entries: dict[str, dict[str, Any]] = {
            name: {
                **ReplayedServer(f"{file}, server {name!r}", server, self._mismatches.append, clock),
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
        """The requests so far that were not recorded, each with its difference."""
        return list(self._mismatches)

    def check(self) -> None:
        """Raise `CassetteMismatch` (an AssertionError) if a server got a request that was not recorded.

        The call itself got an error with the same text, which an agent may have shown to its model.
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
            # Most likely a mismatch caused the error.
            for mismatch in self.mismatches:
                error.add_note(mismatch)
