"""The public path of `gaia.mcp.transports.base`."""

from gaia.mcp.transports.base import ChannelTransport, MCPTransport

__all__ = ["ChannelTransport", "MCPTransport"]
