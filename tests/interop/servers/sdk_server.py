"""A server on the newest official Python SDK: ``sdk_server.py [http PORT]``, over stdio by default."""

import os
import sys

from mcp.server import MCPServer

server = MCPServer("python-sdk")


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def pid() -> str:
    """The process id of the server."""
    return str(os.getpid())


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
