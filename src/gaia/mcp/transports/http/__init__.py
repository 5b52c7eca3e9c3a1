"""Servers that are reached over HTTP (specification, "Streamable HTTP"), and over the older HTTP with SSE."""

from gaia.mcp.transports.http.transport import HttpTransport

__all__ = ["HttpTransport"]
