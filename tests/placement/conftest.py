"""Servers that the process engine places: real hosts of this machine, with short leases."""

import sys
from typing import Any

import psutil

from gaia.mcp.client import MCPClient
from tests.waiting import wait_until

DEMO = {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]}

LEASE = 1.0


def placed(entry: dict[str, Any] = DEMO, **placement: Any) -> dict[str, Any]:
    return {**entry, "placement": {"engine": "process", "lease": LEASE, **placement}}


def processes_of(client: MCPClient) -> list[psutil.Process]:
    """The host, and everything that it has started."""
    placement = client.status.placement
    assert placement is not None
    host = psutil.Process(placement.host_pid)
    return [host, *host.children(recursive=True)]


def are_gone(processes: list[psutil.Process]) -> bool:
    return wait_until(lambda: all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in processes))
