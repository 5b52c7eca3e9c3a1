"""One of gaia-mcp's transports alone, as the specification of `MCPTransport` has it: no manager and no supervision."""

from __future__ import annotations

from typing import Any

from driving import drive, is_url

_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "transport", "version": "1"},
}


class Transport:
    def load(self) -> None:
        from gaia.mcp.transports import StdioTransport

        self._stdio = StdioTransport

    def connect(self, argv: list[str], servers: int) -> None:
        self._transport = self._http(argv[0]) if is_url(argv) else self._stdio(argv[0], argv[1:])
        self._transport.connect()
        self._transport.send_request("initialize", _HELLO)

    def disconnect(self) -> None:
        self._transport.disconnect()

    def request(self, text: str) -> dict[str, Any]:
        return {"name": "echo", "arguments": {"text": text}}

    def call(self, server: int, request: dict[str, Any]) -> Any:
        return self._transport.send_request("tools/call", request)

    def is_echo(self, request: dict[str, Any], answer: Any) -> bool:
        return answer["result"]["content"][0]["text"] == request["arguments"]["text"]

    def _http(self, url: str) -> Any:
        from gaia.mcp.transports.http import HttpTransport

        return HttpTransport(url)


if __name__ == "__main__":
    drive(Transport())
