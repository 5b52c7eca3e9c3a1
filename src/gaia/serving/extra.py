"""Checks that the packages of an extra are installed."""

from __future__ import annotations

from gaia.runtime.extras import missing


class ServingUnavailable(ImportError):
    """A package of an extra is missing, or of a version that cannot be used; the message says how to install it."""


def require(*packages: str, extra: str = "serve") -> None:
    """Raise `ServingUnavailable` unless all `packages`, which ``gaia-mcp[<extra>]`` has, are installed."""
    if (lack := missing(extra, *packages)) is not None:
        what = "Serving" if extra == "serve" else f"The {extra}"
        raise ServingUnavailable(f"{what} needs {lack}")
