"""An MCP server that runs the Python code that it is sent, and says what came of it: what a hostile server could do.

The tool ``attempt`` takes ``code``. It returns the value of the name ``result`` that the code leaves, or the exception.
Standard library only, so that it starts in an isolated interpreter.
"""

import json
import sys
from typing import Any


def attempt(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    try:
        exec(code, names)
    except BaseException as error:  # noqa: BLE001 - whatever comes of it is the answer
        return {"error": type(error).__name__, "errno": getattr(error, "errno", None), "text": str(error)}
    return {"result": names.get("result")}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            server = {"name": "probing", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [{"name": "attempt", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = json.dumps(attempt(request["params"]["arguments"]["code"]))
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            known = request["method"] in ("initialize", "tools/list", "tools/call", "ping")
            outcome = {"result": answer(request)} if known else {"error": {"code": -32601, "message": "unknown"}}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
