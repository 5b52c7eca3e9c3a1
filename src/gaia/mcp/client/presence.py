"""`Presence`: which servers of a manager are ready, and what is waited for until they are."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.readiness import Absence, Goal, absence_of
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.supervision.status import ServerStatus


class Presence:
    """Looks at the servers each time that it is asked, and keeps nothing. Thread-safe."""

    def __init__(
        self,
        config: Callable[[], MCPConfig],
        status: Callable[[], list[ServerStatus]],
        connected: Callable[[], Container[str]],
    ) -> None:
        """`config` is what the manager has now, `connected` are the servers whose tools can be called."""
        self._config = config
        self._status = status
        self._connected = connected

    def all_ready(self) -> Goal[bool]:
        """All servers that were started are ready; if none was, all that could be."""

        def is_over() -> bool:
            absences = self._absences(self._awaited())
            return not absences or any(absence.is_final for absence in absences)

        return Goal(is_over, lambda: not self._absences(self._awaited()))

    def required(self, names: tuple[str, ...]) -> Goal[None]:
        """The servers `names` are ready, by default all that are enabled. Fails with `ServerUnavailable`."""
        names = names or tuple(enabled_servers(self._config()))

        def check() -> None:
            if missing := self._absences(names):
                raise ServerUnavailable("\n".join(absence.error.message for absence in missing))

        return Goal(lambda: all(absence.is_final for absence in self._absences(names)), check)

    def why_absent(self, name: str) -> ServerUnavailable | None:
        """What keeps one server from being ready; None if it is."""
        absences = self._absences([name])
        return absences[0].error if absences else None

    def _awaited(self) -> list[str]:
        return [status.name for status in self._status()] or enabled_servers(self._config())

    def _absences(self, names: Iterable[str]) -> list[Absence]:
        """Why those among `names` that are not ready are not."""
        statuses = {status.name: status for status in self._status()}
        config, connected = self._config(), self._connected()
        entries = config.get_entries()
        found = (
            absence_of(
                name,
                statuses.get(name),
                is_configured=name in entries,
                is_disabled=is_disabled(config, name),
                joined=name in connected,
            )
            for name in names
        )
        return [absence for absence in found if absence is not None]


def enabled_servers(config: MCPConfig) -> list[str]:
    """The servers that are configured and not disabled."""
    return [name for name in config.get_entries() if not is_disabled(config, name)]


def is_disabled(config: MCPConfig, name: str) -> bool:
    """Whether the entry of a server says ``"disabled": true``."""
    return config.get_server(name).get("disabled") is True
