"""Transports: how bytes reach a server and come back."""

from gaia.mcp.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.transports.stdio import StdioTransport

__all__ = ["ChannelTransport", "MCPTransport", "StdioTransport"]
