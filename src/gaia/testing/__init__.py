"""Test agents without servers: fakes that fail on demand, and cassettes of what real servers have answered.

A `FakeServer` stands in a configuration where a real server does. `record` writes what real servers are asked and
answer to a file, and `replay` makes servers of that file.

```python
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer

server = FakeServer("time", tools=[now])
with MCPClientManager({"time": server}) as manager:
    server.crash()
    manager.call_tool("mcp_time_now")
```

A name is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.testing.fake_clock import FakeClock
    from gaia.testing.fake_server import FakeServer
    from gaia.testing.fake_state import FakeCall
    from gaia.testing.fake_tool import FakePrompt, FakeTool
    from gaia.testing.mismatch import CassetteMismatch
    from gaia.testing.recording import record
    from gaia.testing.replaying import Replay, replay

__all__ = [
    "CassetteMismatch",
    "FakeCall",
    "FakeClock",
    "FakePrompt",
    "FakeServer",
    "FakeTool",
    "Replay",
    "record",
    "replay",
]

_HOMES = {
    "CassetteMismatch": "gaia.testing.mismatch",
    "FakeCall": "gaia.testing.fake_state",
    "FakeClock": "gaia.testing.fake_clock",
    "FakePrompt": "gaia.testing.fake_tool",
    "FakeServer": "gaia.testing.fake_server",
    "FakeTool": "gaia.testing.fake_tool",
    "Replay": "gaia.testing.replaying",
    "record": "gaia.testing.recording",
    "replay": "gaia.testing.replaying",
}
"""The module of each name."""


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """What a shell completes, loaded or not."""
        return sorted({*globals(), *__all__})
