"""The standard library's HTTP client with a ready-made body, for comparison. Each thread has its own connection."""

from __future__ import annotations

import json
from typing import Any

from driving import drive

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class HttpClient:
    def load(self) -> None:
        import http.client
        import threading

        self._connection_class, self._of_thread = http.client.HTTPConnection, threading.local()

    def connect(self, argv: list[str], servers: int) -> None:
        self._host = argv[0].removeprefix("http://").partition("/")[0]

    def disconnect(self) -> None:
        self._connection().close()

    def request(self, text: str) -> bytes:
        params = {"name": "echo", "arguments": {"text": text}}
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()

    def call(self, server: int, request: bytes) -> bytes:
        connection = self._connection()
        connection.request("POST", "/mcp", request, _HEADERS)
        return connection.getresponse().read()

    def is_echo(self, request: bytes, answer: bytes) -> bool:
        text = json.loads(request)["params"]["arguments"]["text"]
        return f'"text":"{text}"'.encode() in answer

    def _connection(self) -> Any:
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = self._connection_class(self._host)
        return self._of_thread.connection


if __name__ == "__main__":
    drive(HttpClient())
