"""The state of a fake server that outlives its restarts: its items, and the calls so far."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from gaia.mcp.rpc.channel import Ending
from gaia.runtime.clock import Clock
from gaia.runtime.locks import reentrant_lock
from gaia.testing.fake_clock import FakeClock, blocked_loop
from gaia.testing.fake_tool import FakePrompt, FakeTool, Json

Content = str | bytes

_PATIENCE = 60.0


@dataclasses.dataclass(eq=False)
class FakeCall:
    """A ``tools/call`` that has reached a fake server."""

    tool: str
    """The server's own name of the tool."""
    arguments: Json
    """The arguments as they came."""
    generation: int
    """The number of the server's start, from 1."""
    meta: Json = dataclasses.field(repr=False)
    """The content of ``_meta``, such as the trace context."""
    cancelled: bool = False
    """Whether the client has cancelled the call, for example at its deadline."""


class FakeResource:
    def __init__(self, uri: str, content: Content | Callable[[], Content], **definition: Any) -> None:
        self.name = uri
        self.definition: Json = {"uri": uri, "name": uri.rpartition("/")[2] or uri, **definition}
        self._content = content

    def read(self) -> Json:
        content = self._content() if callable(self._content) else self._content
        body = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}
        mime = self.definition.get("mimeType", "text/plain" if "text" in body else "application/octet-stream")
        return {"contents": [{"uri": self.name, "mimeType": mime, **body}]}


ItemT = TypeVar("ItemT", FakeTool, FakePrompt, FakeResource)


class Collection(Generic[ItemT]):
    """A fake server's items of one kind, by name. Connected clients are notified of changes. Thread-safe."""

    def __init__(self, on_changed: Callable[[], None]) -> None:
        self._lock = reentrant_lock()
        """Guards writing `_items`, which is replaced as a whole, so that reading takes no lock."""
        self._items: dict[str, ItemT] = {}
        self._on_changed = on_changed

    def _put(self, item: ItemT) -> ItemT:
        with self._lock:
            self._items = {**self._items, item.name: item}
        self._on_changed()
        return item

    def remove(self, name: str) -> None:
        """Remove an item. Raises KeyError for an unknown name."""
        with self._lock:
            items = dict(self._items)
            del items[name]
            self._items = items
        self._on_changed()

    def get(self, name: object) -> ItemT | None:
        """The item of this name; None if it is not there."""
        return self._items.get(name) if isinstance(name, str) else None

    def definitions(self) -> list[Json]:
        """The definitions for a listing."""
        return [item.definition for item in self._items.values()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Tools(Collection[FakeTool]):
    """The tools of a `FakeServer`."""

    def add(self, tool: FakeTool | Callable[..., object] | Mapping[str, Any]) -> FakeTool:
        """Add a tool, or replace the one of the same name: a function, or a definition."""
        return self._put(FakeTool.of(tool))


class Prompts(Collection[FakePrompt]):
    """The prompts of a `FakeServer`."""

    def add(self, prompt: FakePrompt | Callable[..., object]) -> FakePrompt:
        """Add a prompt, or replace the one of the same name."""
        return self._put(FakePrompt.of(prompt))


class Resources(Collection[FakeResource]):
    """The resources of a `FakeServer`."""

    def __init__(self, on_changed: Callable[[], None], on_updated: Callable[[str], None]) -> None:
        super().__init__(on_changed)
        self._on_updated = on_updated

    def add(self, uri: str, content: Content | Callable[[], Content], **definition: Any) -> FakeResource:
        """Add a resource: a text, bytes, or a function that returns one of them.

        `definition` are members of its entry in ``resources/list``, such as ``name`` and ``mimeType``.
        """
        return self._put(FakeResource(uri, content, **definition))

    def update(self, uri: str, content: Content | Callable[[], Content]) -> None:
        """Change the content of a resource, and notify its subscribers. Raises KeyError for an unknown URI."""
        with self._lock:
            members = {key: value for key, value in self._items[uri].definition.items() if key != "uri"}
            self._items = {**self._items, uri: FakeResource(uri, content, **members)}
        self._on_updated(uri)


class FakeServerState:
    """The state that all generations of a fake server share. Thread-safe."""

    def __init__(
        self,
        name: str,
        *,
        revision: str,
        instructions: str | None,
        clock: Clock,
        notify: Callable[[str, Json], None],
    ) -> None:
        self.name = name
        self.revision = revision
        self.instructions = instructions
        self.clock = clock
        self.tools = Tools(lambda: notify("notifications/tools/list_changed", {}))
        self.prompts = Prompts(lambda: notify("notifications/prompts/list_changed", {}))
        self.resources = Resources(
            lambda: notify("notifications/resources/list_changed", {}),
            lambda uri: notify("notifications/resources/updated", {"uri": uri}),
        )
        self._changed = threading.Condition()
        """Guards `_calls` and `_planned`. Notified when a call has arrived."""
        self._calls: list[FakeCall] = []
        self._planned: list[_PlannedFault] = []

    @property
    def calls(self) -> list[FakeCall]:
        with self._changed:
            return list(self._calls)

    def plan(self, fault: Fault, tool: str | None, nth: int, times: int | None) -> None:
        """Plan `fault` for the `nth` call from now on, and for the following ones, `times` in all (None: no limit).

        Only calls of `tool` count if it is given. Raises ValueError for a number below 1.
        """
        for name, value in (("nth", nth), ("times", times)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be 1 or more, got {value!r}")
        with self._changed:
            self._planned.append(_PlannedFault(fault, tool, nth - 1, times))

    def clear_faults(self) -> None:
        with self._changed:
            self._planned.clear()

    def begin_work(self) -> Callable[[], None]:
        """Make a fake clock wait for the server until the returned function is called, which may be repeated."""
        work, first = contextlib.ExitStack(), threading.Lock()
        if isinstance(self.clock, FakeClock):
            work.enter_context(self.clock.hold())

        def end() -> None:
            if first.acquire(False):
                work.close()

        return end

    def record(self, call: FakeCall) -> list[Fault]:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
            concerned = [planned for planned in self._planned if planned.tool in (None, call.tool)]
            due = [planned for planned in concerned if planned.before == 0]
            for planned in concerned:
                if planned.before:
                    planned.before -= 1
                elif planned.times is not None:
                    planned.times -= 1
            self._planned = [planned for planned in self._planned if planned.times != 0]
            return [planned.fault for planned in due]

    def wait_for_call(self, tool: str | None, nth: int) -> FakeCall:
        def matching() -> list[FakeCall]:
            return [call for call in self._calls if tool in (None, call.tool)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(matching()) >= nth, _PATIENCE):
                came = [call.tool for call in self._calls]
                missing = f"call {nth} of {tool or 'any tool'} did not come; the calls that came: {came}"
                raise AssertionError(missing + blocked_loop("server.wait_for_call"))
            return matching()[nth - 1]


class Fault(msgspec.Struct, frozen=True):
    kind: Literal["delay", "junk", "hang", "end"]
    seconds: float = 0.0
    data: bytes = b""
    ending: Ending = Ending()
    after: bool = False


@dataclasses.dataclass
class _PlannedFault:
    fault: Fault
    tool: str | None
    """None: calls of any tool count."""
    before: int
    times: int | None
    """Number of times that the fault still happens; None: no limit."""
