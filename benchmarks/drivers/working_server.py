"""A server with one thread, for measurements of replicas.

``sleep`` returns after so many seconds, ``compute`` after some milliseconds of work in Python.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

_WORK = 200_000
_TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("sleep", "compute")
]


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **_answer(message)}) + "\n")
            sys.stdout.flush()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params", {})
    if message["method"] == "initialize":
        result: Any = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "working", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": _TOOLS}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": _called(params["name"], params["arguments"])}]}
    elif message["method"] == "ping":
        result = {}
    else:
        return {"error": {"code": -32601, "message": "unknown method"}}
    return {"result": result}


def _called(tool: str, arguments: dict[str, Any]) -> str:
    if tool == "compute":
        return str(sum(number * number for number in range(_WORK)))
    time.sleep(arguments["seconds"])
    return ""


main()
