"""`ToolRegistry`: one agent's view of the tools of the process.

An agent sees these entries; the first one with a name wins:

1. its **own** entries: the tools of its MCP servers, and entries that it writes into its registry;
2. the tools that it registered with the `tool` decorator in ``_register_tools``, which are bound to this agent;
3. entries of the shared registry, `_TOOL_REGISTRY`, that are not another agent's own.

So agents neither see nor replace each other's tools. An own entry is also put into the shared registry if its name is
free, and only its owner removes it. Then the agent that has waited longest for the name gets it.
"""

from __future__ import annotations

import contextlib
import queue
import weakref
from collections.abc import Callable, ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from contextlib import AbstractContextManager

from gaia.agents.base.tools import _TOOL_REGISTRY, Entry, collect_tools
from gaia.runtime.locks import lock_held_over_forks

_Table = dict[str, Entry]

_lock = lock_held_over_forks()
"""Guards all views and their writes to shared registries. Taken with `_holding`."""

_dropped: queue.SimpleQueue[tuple[_SharedRegistry, _Table]] = queue.SimpleQueue()
"""Own entries of agents that were garbage-collected. The next thread with the lock withdraws them.

A finalizer must not wait for the lock, because its thread may hold another lock that the holder of this one needs.
"""


@contextlib.contextmanager
def _holding() -> Iterator[None]:
    with _lock:
        _withdraw_dropped()
        yield


def _withdraw_dropped() -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            shared, table = _dropped.get_nowait()
            for key in list(table):
                shared.withdraw(key, table)


def _drop(shared: _SharedRegistry, table: _Table) -> None:
    _dropped.put((shared, table))
    if _lock.acquire(False):
        try:
            _withdraw_dropped()
        finally:
            _lock.release()


class ToolRegistry(MutableMapping[str, Entry]):
    """The tools of one agent, by the names under which the agent calls them. Thread-safe.

    Iteration, and the views of `keys`, `values` and `items`, use a snapshot.
    """

    def __init__(self, shared: dict[str, Entry] | None = None) -> None:
        self._own: _Table = {}
        self._bound: _Table = {}
        """The agent's own tools from the decorator. Other agents also find them in the shared registry."""
        self.server_order: Callable[[], list[str]] = list
        """Returns the agent's MCP servers in listing order. Called without the lock."""
        entries = _TOOL_REGISTRY if shared is None else shared
        with _holding():
            self._shared = _shared_registries.setdefault(id(entries), _SharedRegistry(entries))
        weakref.finalize(self, _drop, self._shared, self._own).atexit = False

    def __getitem__(self, key: str) -> Entry:
        with _holding():
            for table in (self._own, self._bound):
                if key in table:
                    return table[key]
            if self._shared.owner(key) is not None:
                raise KeyError(key)
            return self._shared.entries[key]

    def __setitem__(self, key: str, entry: Entry) -> None:
        with _holding():
            self._own[key] = entry
            self._shared.offer(key, self._own)

    def __delitem__(self, key: str) -> None:
        with _holding():
            if key in self._own:
                del self._own[key]
                self._shared.withdraw(key, self._own)
            elif key in self._bound:
                entry = self._bound.pop(key)
                if self._shared.entries.get(key) is entry:
                    del self._shared.entries[key]
            else:
                _ = self[key]
                del self._shared.entries[key]

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
        """A snapshot of the visible tools: native tools in the order of registration, then the agent's own entries.

        Tools of MCP servers follow `server_order`, then their server's order, because models cache equal beginnings of
        prompts.
        """
        servers = {name: position for position, name in enumerate(self.server_order())}

        def position(item: tuple[str, Entry]) -> tuple[int, int]:
            server = item[1].get("_mcp_server")
            if server is None:
                return (-1, 0)
            return (servers.get(server, len(servers)), getattr(item[1], "position", 0))

        with _holding():
            native = {
                key: self._bound.get(key, entry)
                for key, entry in self._shared.entries.copy().items()
                if key in self._bound or self._shared.owner(key) is None
            }
            others = {key: entry for key, entry in {**native, **self._bound}.items() if key not in self._own}
            return {**others, **dict(sorted(self._own.items(), key=position))}

    def collecting(self) -> AbstractContextManager[None]:
        """Bind tools to this agent that the `tool` decorator registers in this block, in this thread."""
        return collect_tools(self._bind)

    def adopt(self, belongs: Callable[[Entry], bool]) -> None:
        """Take over entries of the shared registry that have no owner and for which `belongs` is true."""
        with _holding():
            for key, entry in self._shared.entries.copy().items():
                if self._shared.owner(key) is None and belongs(entry):
                    self._own[key] = entry
                    self._shared.place(key, self._own)

    def discard(self, belongs: Callable[[Entry], bool]) -> None:
        """Remove the own entries for which `belongs` is true."""
        with _holding():
            for key in [key for key, entry in self._own.items() if belongs(entry)]:
                del self[key]

    def _bind(self, key: str, entry: Entry) -> None:
        with _holding():
            self._bound[key] = entry


class _SharedRegistry:
    """A registry that several agents share, with each entry's owner: a table of own entries. Needs `_lock`."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self._placed: dict[str, tuple[Entry, _Table]] = {}
        """The owners' entries in `entries`. An entry that other code has replaced has no owner."""
        self._waiting: dict[str, list[_Table]] = {}
        """By name: the agents that wait for a taken name, in order of waiting."""

    def owner(self, key: str) -> _Table | None:
        placed = self._placed.get(key)
        return placed[1] if placed is not None and self.entries.get(key) is placed[0] else None

    def offer(self, key: str, table: _Table) -> None:
        """Place the owner's entry if the name is free or its own; otherwise the owner waits for the name."""
        if key not in self.entries or self.owner(key) is table:
            self.place(key, table)
        elif not any(other is table for other in self._waiting.get(key, ())):
            self._waiting.setdefault(key, []).append(table)

    def place(self, key: str, table: _Table) -> None:
        self.entries[key] = table[key]
        self._placed[key] = (table[key], table)
        self._stop_waiting(key, table)

    def withdraw(self, key: str, table: _Table) -> None:
        """Remove the owner's entry, and give the name to the agent that has waited longest."""
        self._stop_waiting(key, table)
        owner = self.owner(key)
        if key in self._placed and self._placed[key][1] is table:
            del self._placed[key]
        if owner is table:
            del self.entries[key]
            if key in self._waiting:
                self.place(key, self._waiting[key][0])

    def _stop_waiting(self, key: str, table: _Table) -> None:
        waiting = [other for other in self._waiting.pop(key, ()) if other is not table]
        if waiting:
            self._waiting[key] = waiting


_shared_registries: weakref.WeakValueDictionary[int, _SharedRegistry] = weakref.WeakValueDictionary()
"""By the identity of the entries, which the object keeps alive. Guarded by `_lock`."""
