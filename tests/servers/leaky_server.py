"""An MCP server that tells everybody the secrets it was given, wherever there is room for a word.

    python leaky_server.py MODE SECRET...

It knows the environment variable ``CANARY_TOKEN`` and its arguments after the mode. `MODE` is ``talk``, which works and
leaks, or the moment at which it fails: ``start``, ``handshake``, ``list``.
"""

import json
import os
import sys
from typing import Any

MODE, *ARGUMENTS = sys.argv[1:]
SECRETS = " ".join([os.environ.get("CANARY_TOKEN", ""), *ARGUMENTS])


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def error(identifier: Any) -> None:
    write({"id": identifier, "error": {"code": -32000, "message": f"cannot log in with {SECRETS}"}})


def fail() -> None:
    sys.stderr.write(f"fatal: cannot log in with {SECRETS}\n")
    sys.stderr.flush()
    os._exit(3)


def answer(message: dict[str, Any]) -> None:
    identifier, method = message.get("id"), message.get("method")
    if method == "initialize":
        if MODE == "handshake":
            write({"id": identifier, "result": {"protocolVersion": SECRETS, "capabilities": {}, "serverInfo": {}}})
            return
        info = {"name": f"leaky {SECRETS}", "version": SECRETS}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        write({"id": identifier, "result": result})
    elif method == "tools/list":
        if MODE == "list":
            write({"id": identifier, "result": {"tools": [], "nextCursor": SECRETS}})
            return
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "error", "bad", "crash")]
        write({"id": identifier, "result": {"tools": tools}})
    elif method == "tools/call":
        call(identifier, message["params"]["name"])
    elif identifier is not None:
        error(identifier)


def call(identifier: Any, tool: str) -> None:
    write({"method": "notifications/message", "params": {"level": "error", "logger": SECRETS, "data": SECRETS}})
    sys.stdout.write(f"debug: {SECRETS}\n")
    sys.stderr.write(f"called {tool} with {SECRETS}\n")
    sys.stderr.flush()
    if tool == "crash":
        fail()
    elif tool == "error":
        error(identifier)
    elif tool == "bad":
        write({"id": identifier, "result": SECRETS})
    else:
        content = [{"type": "text", "text": f"the answer is {SECRETS}"}]
        write({"id": identifier, "result": {"content": content, "isError": True}})


if __name__ == "__main__":
    write({"id": None, "error": {"code": -32700, "message": SECRETS}})
    write({"method": "notifications/message", "params": {"level": "info", "data": {"with": SECRETS}}})
    sys.stdout.write(f"hello, I know {SECRETS}\n")
    sys.stderr.write(f"starting with {SECRETS}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    if MODE == "start":
        fail()
    for line in sys.stdin:
        answer(json.loads(line))
