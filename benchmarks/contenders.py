"""The clients that are measured: the raw pipe as the floor, gaia-mcp, and its peers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ALL",
    "FLOOR",
    "GAIA",
    "PEERS",
    "SANDBOXED",
    "SHOWN",
    "TRACED",
    "UNSAMPLED",
    "WITHOUT_CONTENT",
    "WITH_CONTENT",
    "Contender",
]


class Contender(NamedTuple):
    """One client under measurement, in a process of its own."""

    key: str
    title: str
    driver: str
    """The script in ``benchmarks/drivers``."""
    requirements: tuple[str, ...] = ()
    """What is installed into its own virtual environment; empty for those that run in ours."""
    arguments: tuple[str, ...] = ()
    """Of the driver."""


FLOOR = Contender("raw-pipe", "raw pipe", "raw_pipe_driver.py")
GAIA = Contender("gaia-mcp", "gaia-mcp", "gaia_driver.py")
UNSAMPLED = Contender(
    "gaia-mcp-unsampled", "gaia-mcp, no trace sampled", "gaia_traced_driver.py", arguments=("--unsampled",)
)
TRACED = Contender("gaia-mcp-traced", "gaia-mcp, all traces sampled", "gaia_traced_driver.py")

WITHOUT_CONTENT = Contender(
    "gaia-mcp-no-content", "gaia-mcp, traced, no content", "gaia_traced_driver.py", arguments=("NO_CONTENT",)
)
WITH_CONTENT = Contender(
    "gaia-mcp-content", "gaia-mcp, traced, full content", "gaia_traced_driver.py", arguments=("SPAN_ONLY",)
)

SANDBOXED = Contender("gaia-mcp-sandbox", "gaia-mcp, in a sandbox", "gaia_driver.py", arguments=("--sandbox",))

_SDK = ("mcp>=2.3",)
_FASTMCP = ("fastmcp>=4",)

PEERS = (
    Contender("mcp", "mcp, async", "mcp_driver.py", _SDK),
    Contender("mcp-portal", "mcp, from sync code", "mcp_driver.py", _SDK, ("--portal",)),
    Contender("fastmcp", "fastmcp, async", "fastmcp_driver.py", _FASTMCP),
    Contender("fastmcp-portal", "fastmcp, from sync code", "fastmcp_driver.py", _FASTMCP, ("--portal",)),
    Contender("strands", "strands-agents", "strands_driver.py", ("strands-agents>=1.62",)),
    # It imports modules that version 2 of the SDK removed, and a package that it does not require.
    Contender("mcpadapt", "mcpadapt", "mcpadapt_driver.py", ("mcpadapt", "mcp<2", "websockets")),
    Contender("amd-gaia", "amd-gaia", "amd_gaia_driver.py", ("amd-gaia",)),
)

ALL = (FLOOR, GAIA, *PEERS)
"""The contenders of every measure."""

SHOWN = (FLOOR, GAIA, UNSAMPLED, TRACED, WITHOUT_CONTENT, WITH_CONTENT, SANDBOXED, *PEERS)
"""The order of tables and plots."""
