"""Types of the fixtures that the tests of the command line use."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Invoke = Callable[..., Any]
"""Runs `gaia mcp`, and returns its result, or its document."""
Told = Callable[..., str]
"""Runs `gaia mcp` for what it writes."""
Answer = Callable[..., tuple[int, str]]
"""Runs `gaia mcp` at a terminal where this is typed."""
Configure = Callable[..., Path]
FaultServer = Callable[..., Json]
Saved = Callable[[], Json]
Start = Callable[..., subprocess.Popen[str]]
ProcessesOf = Callable[[], list[int]]
