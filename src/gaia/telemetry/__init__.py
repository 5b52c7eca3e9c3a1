"""Traces and metrics, after the OpenTelemetry conventions for MCP.

The library uses the OpenTelemetry API only and sets nothing global: without an SDK a call costs about a microsecond
more. An application that has no SDK of its own can have one set up by `configure`.

Names in ``attributes``, spans in ``spans``, instruments in ``metrics``, what is recorded of arguments and results in
``content``. Importing this package imports none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.telemetry.configuration import Telemetry, configure
    from gaia.telemetry.content import CaptureMode, ContentPolicy, Recorded, set_content_hook
    from gaia.telemetry.spans import reuse_execute_tool_spans

__all__ = [
    "CaptureMode",
    "ContentPolicy",
    "Recorded",
    "Telemetry",
    "configure",
    "reuse_execute_tool_spans",
    "set_content_hook",
]

_HOMES = {
    "CaptureMode": "content",
    "ContentPolicy": "content",
    "Recorded": "content",
    "Telemetry": "configuration",
    "configure": "configuration",
    "reuse_execute_tool_spans": "spans",
    "set_content_hook": "content",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
