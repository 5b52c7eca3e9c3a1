"""A server on fastmcp, over stdio."""

from fastmcp import FastMCP

server = FastMCP("fastmcp")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    server.run()
