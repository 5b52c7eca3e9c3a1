"""A server with 120 tools, such as an agent has that uses several real servers.

PYTHONPATH=src python tests/servers/many_tools_server.py
"""

import sys
from collections.abc import Callable

from gaia.mcp.demo_server import READ_ONLY, DemoServer, Json, Tool, serve, text_result

TEXT: Json = {"type": "string"}
PROPERTIES: Json = {
    "query": {**TEXT, "description": "What to look for."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    "tags": {"type": "array", "items": TEXT, "default": []},
    "order": {**TEXT, "enum": ["asc", "desc"], "default": "asc"},
    "window": {"type": "object", "properties": {"from": TEXT, "to": TEXT}, "required": ["from"]},
    "folder": {"anyOf": [TEXT, {"type": "null"}], "default": None},
}


class ManyToolsServer(DemoServer):
    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__(write)
        self.tools = {
            name: Tool(name, f"Search {name}.", PROPERTIES, READ_ONLY, lambda _call, **_: text_result("found"))
            for name in (f"collection_{number}" for number in range(120))
        }


if __name__ == "__main__":
    sys.exit(serve(ManyToolsServer))
