"""A server with one thread, for measurements on a cluster and of replicas: it sleeps, computes, or answers with much.

``sleep`` returns after so many seconds, ``compute`` after some milliseconds of work in Python, ``blob`` a text of so
many bytes, ``echo`` the text that it was given, and ``began`` when the server began to read, in seconds of the clock
that counts from the system's start.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

_WORK = 200_000
_TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("sleep", "compute", "blob", "echo", "began")
]


def main() -> None:
    began = 0.0
    blobs: dict[int, str] = {}
    for line in sys.stdin:
        began = began or time.clock_gettime(time.CLOCK_BOOTTIME)
        message = json.loads(line)
        if "id" in message:
            answer = _answer(message, began, blobs)
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},{answer}}}\n')
            sys.stdout.flush()


def _answer(message: dict[str, Any], began: float, blobs: dict[int, str]) -> str:
    params = message.get("params", {})
    if message["method"] == "initialize":
        result: Any = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "cluster", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": _TOOLS}
    elif message["method"] == "tools/call":
        return _called(params["name"], params["arguments"], began, blobs)
    elif message["method"] == "ping":
        result = {}
    else:
        return '"error":{"code":-32601,"message":"unknown method"}'
    return f'"result":{json.dumps(result)}'


def _called(tool: str, arguments: dict[str, Any], began: float, blobs: dict[int, str]) -> str:
    text = ""
    if tool == "sleep":
        time.sleep(arguments["seconds"])
    elif tool == "compute":
        text = str(sum(number * number for number in range(_WORK)))
    elif tool == "blob":
        size = arguments["size"]
        # Made once: what is measured is the way of the answer.
        if size not in blobs:
            blobs[size] = _result("x" * size)
        return blobs[size]
    elif tool == "echo":
        text = arguments["text"]
    elif tool == "began":
        text = str(began)
    return _result(text)


def _result(text: str) -> str:
    return f'"result":{{"content":[{{"type":"text","text":{json.dumps(text)}}}]}}'


main()
