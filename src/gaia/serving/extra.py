"""The packages that only serving needs, and how to get them."""

from __future__ import annotations

import importlib.util

__all__ = ["ServingUnavailable", "require"]


class ServingUnavailable(ImportError):
    """A package of the extra ``gaia-mcp[serve]`` is missing."""


def require(*packages: str) -> None:
    """Raise `ServingUnavailable` unless all `packages` are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ServingUnavailable(
            f"Serving needs {', '.join(missing)}, which is not installed; run: pip install 'gaia-mcp[serve]'"
        )
