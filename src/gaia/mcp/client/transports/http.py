"""The public path of `gaia.mcp.transports.http`."""

from gaia.mcp.transports.http import HttpTransport

__all__ = ["HttpTransport"]
