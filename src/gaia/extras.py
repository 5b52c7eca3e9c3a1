"""The optional packages of gaia-mcp, and the command that installs them.

The command names the packages themselves, not ``gaia-mcp[http]``: it has to work for an installation from a checkout,
from a wheel or from an index alike. It is for the Python that runs this, whatever ``pip`` is first on the PATH.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXTRAS", "install_command"]

_HTTP = "httptools>=0.6.4,<1"
_SERVING = ("starlette>=0.40", "uvicorn>=0.30,<1", "h11>=0.14,<1")

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "http": (_HTTP,),
        "oauth": (_HTTP, "httpx2>=2.16", "mcp>=2.3,<3"),
        "llm": ("openai>=1.60",),
        "otel": ("opentelemetry-exporter-otlp-proto-http>=1.30,<2", "opentelemetry-exporter-prometheus>=0.51b0,<1"),
        "serve": ("mcp>=2.3,<3", *_SERVING),
        "dashboard": _SERVING,
    }
)
"""The requirements of each extra, as pyproject.toml has them (a test compares them)."""


def install_command(extra: str) -> str:
    """The command line, quoted for a shell, that installs the packages of `extra` for this Python.

    An environment that has no pip was made by uv, so its command is uv's.
    """
    if importlib.util.find_spec("pip") is None:
        command = ["uv", "pip", "install", "--python", sys.executable]
    else:
        command = [sys.executable, "-m", "pip", "install"]
    return shlex.join([*command, *EXTRAS[extra]])
