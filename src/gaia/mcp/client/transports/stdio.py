"""The public path of `gaia.mcp.transports.stdio`."""

from gaia.mcp.transports.stdio import StdioTransport

__all__ = ["StdioTransport"]
