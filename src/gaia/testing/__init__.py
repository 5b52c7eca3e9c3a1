"""Tests of agents without real servers: fakes that fail on demand, and cassettes of recorded servers.

A `FakeServer` stands in a configuration where a real server does. `record` writes the requests to real servers and
their answers to a file, and `replay` makes servers from that file.

```python from gaia.mcp import MCPClientManager from gaia.testing import FakeServer

server = FakeServer("time", tools=[now])
with MCPClientManager({"time": server}) as manager:
    server.crash()
    manager.call_tool("mcp_time_now")
```

A name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from gaia.testing.fake_clock import FakeClock
    from gaia.testing.fake_server import FakeServer
    from gaia.testing.fake_state import FakeCall
    from gaia.testing.fake_tool import FakePrompt, FakeTool
    from gaia.testing.mismatch import CassetteMismatch
    from gaia.testing.record_modes import use_cassette
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
    "use_cassette",
]

if not TYPE_CHECKING:
    # Hidden from type checkers: a module with `__getattr__` would have every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaia.testing.fake_clock": "FakeClock",
            "gaia.testing.fake_server": "FakeServer",
            "gaia.testing.fake_state": "FakeCall",
            "gaia.testing.fake_tool": "FakePrompt FakeTool",
            "gaia.testing.mismatch": "CassetteMismatch",
            "gaia.testing.record_modes": "use_cassette",
            "gaia.testing.recording": "record",
            "gaia.testing.replaying": "Replay replay",
        },
    )
