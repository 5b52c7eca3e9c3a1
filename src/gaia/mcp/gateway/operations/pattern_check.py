"""`PatternCheck`: warns of patterns in the clients file that match no tool or server, and so have no effect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.settings import ClientLimits, GatewayLimits
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

Tools = Mapping[str, Collection[str] | None]
"""Each server's tools by the server's name; None if they are not known yet."""


class _Place(NamedTuple):
    where: str
    pattern: str
    profile: Profile
    is_of_tools: bool

    def matches(self, tools: Tools) -> bool | None:
        """Whether the pattern matches a server or a tool; None if that is not known yet."""
        if not self.is_of_tools:
            return any(fnmatchcase(server, self.pattern) for server in tools)
        seen = {server: names for server, names in tools.items() if self.profile.allows_server(server)}
        one = ToolFilter([self.pattern], short_names=True)
        if any(not one.unmatched(server, names) for server, names in seen.items() if names is not None):
            return True
        return None if not seen or None in seen.values() else False


class PatternCheck:
    def __init__(self, clients: ClientsFile) -> None:
        self._open = [*_of_profiles(clients.profiles.values()), *_of_limits("limits", clients.limits, EVERYTHING)]

    @property
    def is_done(self) -> bool:
        return not self._open

    def look(self, tools: Tools) -> None:
        """Log each pattern that matches nothing, once, when that is certain. The gateway calls it at intervals."""
        if not tools:
            return
        still_open = []
        for place in self._open:
            matches = place.matches(tools)
            if matches is None:
                still_open.append(place)
            elif not matches:
                logger.warning("gateway_pattern_matches_nothing", where=place.where, pattern=place.pattern)
        self._open = still_open


def _of_profiles(profiles: Iterable[Profile]) -> Iterator[_Place]:
    for profile in profiles:
        where = f"profiles.{profile.name}"
        if profile is not EVERYTHING:
            yield from (_Place(f"{where}.servers", each, profile, False) for each in profile.servers)
        for key, patterns in (("enabledTools", profile.tools.allow or ()), ("disabledTools", profile.tools.deny)):
            yield from (_Place(f"{where}.{key}", each, profile, True) for each in patterns)
        if profile.limits is not None:
            yield from _of_limits(f"{where}.limits", profile.limits, profile)


def _of_limits(where: str, limits: GatewayLimits | ClientLimits, profile: Profile) -> Iterator[_Place]:
    yield from (_Place(f"{where}.perServer", each, profile, False) for each in limits.per_server)
    yield from (_Place(f"{where}.perTool", each, profile, True) for each in limits.per_tool)
    if isinstance(limits, GatewayLimits) and limits.per_client is not None:
        yield from _of_limits(f"{where}.perClient", limits.per_client, profile)
