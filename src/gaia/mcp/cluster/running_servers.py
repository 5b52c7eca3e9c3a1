"""The placed servers that this program has at the moment: they end with it, and are not those of a forked child."""

from __future__ import annotations

import atexit
import os
from typing import Protocol

from gaia.mcp.cluster.cluster_loop import cluster_loop


class Running(Protocol):
    def request_stop(self, drain: float = 0.0) -> None: ...

    def stop(self, drain: float = 0.0) -> None: ...

    def after_fork(self) -> None: ...


running: set[Running] = set()
"""Each adds and removes itself; everything else iterates over a copy."""


@atexit.register
def _stop_all() -> None:
    servers = list(running)
    for server in servers:
        server.request_stop()
    for server in servers:
        server.stop()


def _after_fork() -> None:
    for server in list(running):
        server.after_fork()
    running.clear()
    cluster_loop.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
