"""gaia-mcp as programs use it: a manager with its filter, deadline, statistics and supervision; tracing is off.

With ``--sandbox`` each server is started in the default sandbox, with ``--standby`` each has a stand-by.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from driving import EchoCalls, drive, entry_of


class Gaia(EchoCalls):
    def __init__(self) -> None:
        self._manager: Any = None

    def load(self) -> None:
        from gaia.mcp.client import MCPClientManager
        from gaia.mcp.client.config import MCPConfig

        self._config, self._manager_class = MCPConfig, MCPClientManager

    def connect(self, argv: list[str], servers: int) -> None:
        file = Path(tempfile.mkdtemp()) / "mcp_servers.json"
        entry = entry_of(argv)
        if "--sandbox" in sys.argv:
            entry["sandbox"] = {"read": [word for word in argv[1:] if os.path.exists(word)]}
        if "--standby" in sys.argv:
            entry["standby"] = True
        file.write_text(json.dumps({"mcpServers": {f"s{index}": entry for index in range(servers)}}))
        self._manager = self._manager_class(self._config(file))
        self._manager.load_from_config()
        self._tools = [f"mcp_s{index}_echo" for index in range(servers)]

    def call(self, server: int, request: dict[str, Any]) -> dict[str, Any]:
        return self._manager.call_tool(self._tools[server], request)

    def disconnect(self) -> None:
        self._manager.disconnect_all()

    def close(self) -> None:
        if self._manager is not None:
            self.disconnect()


if __name__ == "__main__":
    drive(Gaia())
