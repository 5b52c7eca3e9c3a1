"""fastmcp's client from synchronous code."""

from driving import drive
from fastmcp_driver import FastMCP
from portal_contender import PortalContender

if __name__ == "__main__":
    drive(PortalContender(FastMCP()))
