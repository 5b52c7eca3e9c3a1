"""The MCP client of amd-gaia, whose API is the model of ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from driving import EchoCalls, drive, is_url


class AmdGaia(EchoCalls):
    def load(self) -> None:
        from gaia.mcp.client import MCPClientManager
        from gaia.mcp.client.config import MCPConfig

        self._config, self._manager_class = MCPConfig, MCPClientManager

    def connect(self, argv: list[str], servers: int) -> None:
        if is_url(argv):
            raise NotImplementedError("amd-gaia has no transport over HTTP")
        manager = self._manager_class(self._config(str(Path(tempfile.mkdtemp()) / "mcp_servers.json")))
        self._clients = []
        self._manager = manager
        for index in range(servers):
            client = manager.add_server(f"s{index}", {"command": argv[0], "args": argv[1:]})
            client.list_tools()
            self._clients.append(client)

    def disconnect(self) -> None:
        self._manager.disconnect_all()

    def call(self, server: int, request: dict[str, Any]) -> Any:
        return self._clients[server].call_tool("echo", request)


if __name__ == "__main__":
    drive(AmdGaia())
