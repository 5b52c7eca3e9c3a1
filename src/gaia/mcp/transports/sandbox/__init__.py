"""Servers in a sandbox: what a process may read, write and reach, and how much it may use (Linux)."""

from gaia.mcp.transports.sandbox.settings import Sandbox

__all__ = ["Sandbox"]
