"""Spans of an agent's run, by the OpenTelemetry conventions for generative AI.

``invoke_agent`` spans a run, ``chat`` each request to the model, and ``execute_tool`` each native tool. Calls to MCP
servers have spans of their own (`gaia.telemetry`), which are children of the run's span.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

_tracer = trace.get_tracer("gaia.agents")


def set_completion(span: Span, input_tokens: int, output_tokens: int, finish_reason: str | None) -> None:
    span.set_attribute("gen_ai.usage.input_tokens", input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
    if finish_reason is not None:
        span.set_attribute("gen_ai.response.finish_reasons", [finish_reason])


@contextlib.contextmanager
def _span(operation: str, target_attribute: str, kind: SpanKind, target: str) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        f"{operation} {target}",
        kind=kind,
        attributes={"gen_ai.operation.name": operation, target_attribute: target},
        # An exception's message may quote a conversation, and operators need only its type.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
            raise


agent_span = functools.partial(_span, "invoke_agent", "gen_ai.agent.name", SpanKind.INTERNAL)
chat_span = functools.partial(_span, "chat", "gen_ai.request.model", SpanKind.CLIENT)
native_tool_span = functools.partial(_span, "execute_tool", "gen_ai.tool.name", SpanKind.INTERNAL)
