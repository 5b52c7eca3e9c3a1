"""`ToolRegistry`: one agent's view of the tools of the process.

An agent sees, and the first of these that has a name decides:

1. its **own** entries: the tools of its MCP servers, and what it writes into its registry;
2. the tools that it registered with the `tool` decorator in ``_register_tools``: they are bound to this agent, and stay
   when another agent of the same class registers its own;
3. what is in the shared registry, `_TOOL_REGISTRY`, and is not another agent's own.

So agents neither see nor replace each other's tools, whatever their servers are called. The shared registry stays the
place where all tools can be found: an own entry is put there too if its name is free, and taken out by its owner only.
Then the next agent that wanted the name gets it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any

from gaia.agents.base.tools import _TOOL_REGISTRY, collect_tools

__all__ = ["ToolRegistry"]

Entry = dict[str, Any]

_lock = threading.RLock()
"""Owns all views, and what they write to shared registries. Reentrant: a view may be garbage-collected at any time."""

_views: weakref.WeakValueDictionary[int, ToolRegistry] = weakref.WeakValueDictionary()
"""By the order of their making. Views are mappings, so they cannot be members of a set."""

_numbers = itertools.count()


class ToolRegistry(MutableMapping[str, Entry]):
    """The tools of one agent, by the names under which it can call them. Thread-safe.

    Iterating, and the views of `keys`, `values` and `items`, go over the state of one moment.
    """

    def __init__(self, shared: dict[str, Entry] | None = None) -> None:
        self._shared = _TOOL_REGISTRY if shared is None else shared
        self._own: dict[str, Entry] = {}
        self._bound: dict[str, Entry] = {}
        """Tools of the decorator that are this agent's; others find them in the shared registry as well."""
        self._waiting: set[str] = set()
        """Names of own entries that are not in the shared registry because the name was taken."""
        with _lock:
            _views[next(_numbers)] = self
        weakref.finalize(self, _withdraw, self._shared, self._own).atexit = False

    def __getitem__(self, key: str) -> Entry:
        with _lock:
            for table in (self._own, self._bound):
                if key in table:
                    return table[key]
            entry = self._shared[key]
            if id(entry) in self._of_others():
                raise KeyError(key)
            return entry

    def __setitem__(self, key: str, entry: Entry) -> None:
        with _lock:
            before = self._own.get(key)
            self._own[key] = entry
            if key not in self._shared or self._shared[key] is before:
                self._shared[key] = entry
                self._waiting.discard(key)
            else:
                self._waiting.add(key)

    def __delitem__(self, key: str) -> None:
        with _lock:
            if key in self._own:
                entry = self._own.pop(key)
                self._waiting.discard(key)
                if self._shared.get(key) is entry:
                    self._hand_over(key)
            elif key in self._bound:
                entry = self._bound.pop(key)
                if self._shared.get(key) is entry:
                    del self._shared[key]
            else:
                _ = self[key]
                del self._shared[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self)}>"

    def keys(self) -> KeysView[str]:
        return self.copy().keys()

    def values(self) -> ValuesView[Entry]:
        return self.copy().values()

    def items(self) -> ItemsView[str, Entry]:
        return self.copy().items()

    def copy(self) -> dict[str, Entry]:
        """All that the agent sees at this moment, in the order of registration."""
        with _lock:
            of_others = self._of_others()
            tables = {**self._bound, **self._own}
            seen = {
                key: tables.get(key, entry)
                for key, entry in self._shared.copy().items()
                if key in tables or id(entry) not in of_others
            }
            return {**seen, **tables}

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Tools that the `tool` decorator registers inside, in this thread, are bound to this agent."""
        with collect_tools(self._bind):
            yield

    def adopt(self, belongs: Callable[[Entry], bool]) -> None:
        """Make entries own that somebody wrote straight into the shared registry, if they belong to this agent."""
        with _lock:
            of_others = self._of_others()
            for key, entry in self._shared.copy().items():
                if id(entry) not in of_others and belongs(entry):
                    self._own[key] = entry
                    self._waiting.discard(key)

    def discard(self, belongs: Callable[[Entry], bool]) -> None:
        """Take out the own entries of which this is true."""
        with _lock:
            for key in [key for key, entry in self._own.items() if belongs(entry)]:
                del self[key]

    def _bind(self, key: str, entry: Entry) -> None:
        with _lock:
            self._bound[key] = entry

    def _of_others(self) -> set[int]:
        """The identities of the own entries of all other agents."""
        return {id(entry) for view in list(_views.values()) if view is not self for entry in view._own.values()}

    def _hand_over(self, key: str) -> None:
        """Give a name in the shared registry that is free now to the agent that has waited longest."""
        for view in list(_views.values()):
            if view._shared is self._shared and key in view._waiting:
                view._waiting.discard(key)
                self._shared[key] = view._own[key]
                return
        del self._shared[key]


def _withdraw(shared: dict[str, Entry], own: dict[str, Entry]) -> None:
    """Take the entries of a view that is gone out of the shared registry."""
    with _lock:
        for key, entry in own.items():
            if shared.get(key) is entry:
                del shared[key]
