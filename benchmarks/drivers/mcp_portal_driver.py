"""The official SDK's client from synchronous code."""

from driving import drive
from mcp_driver import Sdk
from portal_contender import PortalContender

if __name__ == "__main__":
    drive(PortalContender(Sdk()))
