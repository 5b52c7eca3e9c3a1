"""The public path of the transports; the code is in `gaia.mcp.transports`."""

from gaia.mcp.transports import ChannelTransport, MCPTransport, StdioTransport

__all__ = ["ChannelTransport", "MCPTransport", "StdioTransport"]
