"""Checks that the packages of an extra are installed."""

from __future__ import annotations

import importlib.util

from gaia.extras import install_command

__all__ = ["ServingUnavailable", "require"]


class ServingUnavailable(ImportError):
    """A package of an extra is missing; the message says how to install it."""


def require(*packages: str, extra: str = "serve") -> None:
    """Raise `ServingUnavailable` unless all `packages`, which ``gaia-mcp[<extra>]`` has, are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ServingUnavailable(
            f"Serving needs {', '.join(missing)}, which is not installed; run: {install_command(extra)}"
        )
