"""Allow and deny lists of tools. A denied tool does not exist for agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from gaia.mcp.errors import ConfigError
from gaia.mcp.tools.naming import PREFIX, disambiguated, namespaced

_MAX_DECISIONS = 4096
_MAX_REMEMBERED = 256
"""Characters of a name whose decision is remembered. Names that are in no listing, such as URIs, may be longer."""


@dataclass(frozen=True)
class ToolFilter:
    """Which tools may be listed and called. Immutable; thread-safe. Raises ConfigError for lists that hold no strings.

    Patterns are case-sensitive shell globs (``*``, ``?``, ``[abc]``), tested against the tool's own name and against
    its names among other servers' tools: ``mcp_<server>_<tool>`` and, if an API would refuse that name, its safe form.
    With `short_names`, also against these names without ``mcp_``, as a gateway lists them. `deny` wins. `allow` of None
    allows every tool, an empty `allow` none.
    """

    allow: Sequence[str] | None = None
    """Patterns of the permitted tools; None permits all."""
    deny: Sequence[str] = ()
    """Patterns of denied tools; overrides `allow`."""
    short_names: bool = field(default=False, kw_only=True)
    """Whether ``<server>_<tool>`` also names a tool, as for the clients of a gateway."""
    keys: tuple[str, str] = field(default=("allow", "deny"), kw_only=True, repr=False, compare=False)
    """The names of the two lists in their source, for messages."""
    _decisions: dict[tuple[str, str], bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.allow is not None:
            object.__setattr__(self, "allow", _patterns(self.keys[0], self.allow))
        object.__setattr__(self, "deny", _patterns(self.keys[1], self.deny))

    def allows(self, server: str, tool: str) -> bool:
        """Whether `tool` (its own name) of `server` may be listed and called."""
        if self.allow is None and not self.deny:
            return True
        key = (server, tool)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(server, tool)
            # Names come from listings and are short, so clearing the whole memory bounds it well enough. No lock is
            # needed: at worst two threads make the same decision twice.
            if len(self._decisions) >= _MAX_DECISIONS:
                self._decisions.clear()
            if len(tool) <= _MAX_REMEMBERED:
                self._decisions[key] = decision
        return decision

    def denial(self, server: str, tool: str) -> str | None:
        """Which list denies the tool, as the end of a sentence; None if it is allowed."""
        if self.allows(server, tool):
            return None
        allow, deny = self.keys
        names = self._names(server, tool)
        pattern = next((pattern for pattern in self.deny if _matches(pattern, names)), None)
        return f'is not in "{allow}"' if pattern is None else f'is denied by "{pattern}" in "{deny}"'

    def unmatched(self, server: str, tools: Iterable[str]) -> list[str]:
        """The patterns that match none of `tools` (own names) of `server`; they are probably misspelt."""
        names = [name for tool in tools for name in self._names(server, tool)]
        patterns = dict.fromkeys((*(self.allow or ()), *self.deny))
        return [pattern for pattern in patterns if not _matches(pattern, names)]

    def _decide(self, server: str, tool: str) -> bool:
        names = self._names(server, tool)
        if any(_matches(pattern, names) for pattern in self.deny):
            return False
        return self.allow is None or any(_matches(pattern, names) for pattern in self.allow)

    def _names(self, server: str, tool: str) -> list[str]:
        listed = [f"{PREFIX}{server}_{tool}", namespaced(server, tool), disambiguated(server, tool)]
        return [tool, *listed, *(name.removeprefix(PREFIX) for name in listed if self.short_names)]


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _patterns(which: str, patterns: object) -> tuple[str, ...]:
    # A lone string is also a sequence of one-letter patterns, which is never intended.
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ConfigError(f'tool filter: {which}: expected a list of patterns like ["get_*"], got {patterns!r}')
    found = tuple(patterns)
    for index, pattern in enumerate(found):
        if not isinstance(pattern, str):
            raise ConfigError(f"tool filter: {which}[{index}]: expected a string, got {pattern!r}")
    return found


ALLOW_ALL = ToolFilter()
