"""The client of strands-agents, which is synchronous over an event loop in a thread of each client."""

from __future__ import annotations

from typing import Any

from driving import EchoCalls, drive, is_url


class Strands(EchoCalls):
    def load(self) -> None:
        from mcp import StdioServerParameters, stdio_client
        from strands.tools.mcp import MCPClient

        self._client_class, self._parameters, self._stdio = MCPClient, StdioServerParameters, stdio_client

    def connect(self, argv: list[str], servers: int) -> None:
        def transport() -> Any:
            if not is_url(argv):
                return self._stdio(parameters)
            from mcp.client.streamable_http import streamable_http_client

            return streamable_http_client(argv[0])

        parameters = self._parameters(command=argv[0], args=argv[1:])
        self._clients = []
        for _ in range(servers):
            client = self._client_class(transport)
            client.start()
            client.list_tools_sync()
            self._clients.append(client)

    def disconnect(self) -> None:
        for client in self._clients:
            client.stop(None, None, None)

    def call(self, server: int, request: dict[str, Any]) -> Any:
        return self._clients[server].call_tool_sync("1", "echo", request)


if __name__ == "__main__":
    drive(Strands())
