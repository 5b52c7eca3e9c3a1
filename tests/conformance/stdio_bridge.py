"""A server on stdio that passes everything on to one on Streamable HTTP: ``stdio_bridge.py URL``.

The conformance suite judges clients over HTTP only. Behind this bridge it judges the stdio transport by the same
checks; what is about HTTP itself (headers, streams, authorization) makes no sense here.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import httpx2

Json = dict[str, Any]

META = "io.modelcontextprotocol/protocolVersion"


class Bridge:
    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=url, timeout=60)
        self._output = threading.Lock()
        self._session: dict[str, str] = {}
        """The headers that a session adds to every request after the first."""

    def run(self) -> None:
        waiting = []
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" in message and message.get("method") not in (None, "initialize"):
                thread = threading.Thread(target=self._pass_on, args=(message,))
                thread.start()
                waiting.append(thread)
            else:
                # What has to arrive in the order in which it was sent.
                self._pass_on(message)
            if message.get("method") == "notifications/initialized":
                # What the server asks by itself comes on a stream of its own. Nobody waits for its end.
                threading.Thread(target=self._listen, daemon=True).start()
        for thread in waiting:
            thread.join()

    def _pass_on(self, message: Json) -> None:
        headers = {"Accept": "application/json, text/event-stream", **self._session, **self._about(message)}
        with self._http.stream("POST", "", json=message, headers=headers) as response:
            if session := response.headers.get("mcp-session-id"):
                self._session["Mcp-Session-Id"] = session
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                self._pass_back(response)
            elif body := response.read():
                self._answer(json.loads(body))

    def _listen(self) -> None:
        with self._http.stream("GET", "", headers={"Accept": "text/event-stream", **self._session}) as response:
            if response.is_success:
                self._pass_back(response)

    def _pass_back(self, response: httpx2.Response) -> None:
        for line in response.iter_lines():
            if line.startswith("data:") and line.removeprefix("data:").strip():
                self._answer(json.loads(line.removeprefix("data:")))

    def _about(self, message: Json) -> dict[str, str]:
        """The headers of 2026-07-28, which say again what is in the body."""
        params = message.get("params") or {}
        revision = (params.get("_meta") or {}).get(META)
        if revision is None:
            return {}
        name = params.get("name") or params.get("uri")
        named = {"Mcp-Name": name} if name else {}
        return {"MCP-Protocol-Version": revision, "Mcp-Method": message["method"], **named}

    def _answer(self, message: Json) -> None:
        version = (message.get("result") or {}).get("protocolVersion")
        if version is not None:
            self._session["MCP-Protocol-Version"] = version
        with self._output:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    Bridge(sys.argv[1]).run()
