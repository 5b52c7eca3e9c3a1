"""Transports: how bytes reach a server and come back."""

from gaia.mcp.client.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.client.transports.stdio import StdioTransport

__all__ = ["ChannelTransport", "MCPTransport", "StdioTransport"]
