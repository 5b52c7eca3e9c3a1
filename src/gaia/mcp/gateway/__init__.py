"""All servers, supervised once, for every client, behind one endpoint (extra ``gaia-mcp[gateway]``).

`Gateway` is an ASGI application. It is loaded on first use, so that importing a part of this package is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from gaia.mcp.gateway.gateway import Gateway

__all__ = ["Gateway"]


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(__name__, {"gaia.mcp.gateway.gateway": ("Gateway",)})
