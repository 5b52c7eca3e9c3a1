"""Transports carry bytes to a server and back.

- `base` has the interface that users implement (`MCPTransport`) and the one for supervision (`ChannelTransport`).
- `stdio` starts a server with pipes. `command` finds the program and builds its environment.
- `stdio_channel` is one running server behind pipes; `pipe_writer` and `pipe_reader` do its input and output.
- `process` ends a server with all its child processes, as `reaped_process` (below a reaper of `fork_server`, on Linux)
  or `direct_process` (with a guard process). `fork_server_process` and `guard_process` are separate programs.
- `sandbox` limits a server's access and resources (Linux). `http` has servers that are reached over HTTP.

Invariants: no caller's thread blocks on a full pipe. A server is ended together with all processes that it started,
also if this program is killed (where a fork server or guard can run). A channel reports only through `ChannelListener`.
"""

from gaia.mcp.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.transports.stdio import StdioTransport

__all__ = ["ChannelTransport", "MCPTransport", "StdioTransport"]
