"""Traces and metrics, after the OpenTelemetry conventions for MCP.

- `attributes`: the names of the conventions, and gaia's own. `spans`: spans of requests. `metrics`: the instruments.
- `content` and `masking`: how much of arguments and results is recorded, and which parts are masked.
- `propagation`: the trace context in a request's ``_meta``.
- `configuration`, `exporters` and `metrics_page`: an SDK, for applications without their own.

Invariants: the library uses only the OpenTelemetry API and sets nothing global; without an SDK a call costs about a
microsecond more. An exception of the application's providers costs the span or the figure, never the request. Importing
this package imports none of its modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gaia.telemetry.configuration": "Telemetry configure",
        "gaia.telemetry.content": "CaptureMode ContentPolicy Recorded set_content_hook",
        "gaia.telemetry.spans": "reuse_execute_tool_spans",
    },
)
