"""Traces and metrics, after the OpenTelemetry conventions for MCP.

- `attributes`: the names of the conventions, and gaia's own. `spans`: spans of requests. `metrics`: the instruments.
- `content` and `masking`: how much of arguments and results is recorded, and which parts are masked.
- `propagation`: the trace context in a request's ``_meta``.
- `configuration`, `exporters` and `metrics_page`: an SDK, for applications without their own.

Invariants: the library uses only the OpenTelemetry API and sets nothing global; without an SDK a call costs about a
microsecond more. An exception of the application's providers costs the span or the figure, never the request.
Importing this package imports none of its modules.
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
