"""A gateway: all servers of a manager, supervised once, behind one endpoint (extra ``gaia-mcp[gateway]``).

`Gateway` is an ASGI application. It is loaded on first use, so that importing a part of this package is quick.

A request passes these packages: `front` takes it from HTTP or stdio; `access` finds its client and that client's
rights; `clients` keeps its session and its state; `methods` answers it; `views` says which servers and names the client
sees; `instances` chooses the process of the server; `upstream` sends it there. `operations`, `service` and `stdio` run
a gateway as a program.

Invariants: everything runs on one event loop, and an ordinary call needs no task. Results stay bytes. A client cannot
tell a thing that it may not see from one that does not exist. Every request is answered once, and its error says
whether the server may have acted. All memory that clients can fill is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from gaia.mcp.gateway.gateway import Gateway

__all__ = ["Gateway"]


if not TYPE_CHECKING:
    # Hidden from type checkers: a module with `__getattr__` would have every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(__name__, {"gaia.mcp.gateway.gateway": "Gateway"})
