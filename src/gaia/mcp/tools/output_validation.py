"""Whether results of tools are what the tools promised: ``structuredContent`` against ``outputSchema``.

The specification wants clients to check this ("Tools", "Output Schema"). Results that report an error are no outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gaia.mcp.config.server_config import OutputMode
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.json_schema import CheckGivenUp, JsonSchema, SchemaUnusable
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_MAX_SCHEMAS = 1000


class OutputValidation:
    """The checks of one server's tools.

    Thread-safe: a schema that two threads make ready at once is made ready twice, which does no harm.
    """

    def __init__(self, server: str, mode: OutputMode, redact: Callable[[str], str]) -> None:
        self._server = server
        self._mode = mode
        self._redact = redact
        self._ready: dict[str, tuple[dict[str, Any], JsonSchema | None]] = {}
        """By the tool's name: the schema as it was listed, and ready for checks; None if it cannot be used."""

    @property
    def fails_calls(self) -> bool:
        """Whether a call fails whose result does not fit; otherwise that is only logged."""
        return self._mode == "error"

    def check_of(self, tool: MCPTool | None) -> Callable[[Mapping[str, Any]], InvalidResponse | None] | None:
        """What to check a result of `tool` with; None if there is nothing to check.

        The check returns the error that the call fails with, if any. It may take seconds: see `JsonSchema`.
        """
        if tool is None or tool.output_schema is None or self._mode == "off":
            return None
        name, schema = tool.name, tool.output_schema
        return lambda result: self._check(name, schema, result)

    def prepare(self, tools: Iterable[MCPTool]) -> Iterator[None]:
        """Make the schemas of listed tools ready, one with each step. The first one takes a tenth of a second."""
        if self._mode == "off":
            return
        for tool in tools:
            if tool.output_schema is not None and len(self._ready) < _MAX_SCHEMAS:
                self._usable(tool.name, tool.output_schema)
                yield

    def _check(self, tool: str, schema: dict[str, Any], result: Mapping[str, Any]) -> InvalidResponse | None:
        if result.get("isError") is True:
            return None
        problems = self._problems(tool, schema, result)
        if not problems:
            return None
        text = self._redact("; ".join(problems))
        logger.warning("output_invalid", server=self._server, tool=tool, problems=text)
        if self._mode == "warn":
            return None
        return InvalidResponse(f"the result of {tool} does not fit its outputSchema: {text}")

    def _problems(self, tool: str, schema: dict[str, Any], result: Mapping[str, Any]) -> list[str]:
        usable = self._usable(tool, schema)
        if usable is None:
            return []
        if "structuredContent" not in result:
            return ["there is no structuredContent"]
        try:
            return usable.problems(result["structuredContent"])
        except CheckGivenUp as error:
            logger.warning("output_unchecked", server=self._server, tool=tool, reason=str(error))
            return []
        except SchemaUnusable as error:
            self._give_up(tool, schema, error)
            return []

    def _usable(self, tool: str, schema: dict[str, Any]) -> JsonSchema | None:
        known = self._ready.get(tool)
        if known is not None and (known[0] is schema or known[0] == schema):
            return known[1]
        if len(self._ready) >= _MAX_SCHEMAS:
            self._ready.clear()
        try:
            usable = JsonSchema(schema, on_skipped=lambda part: self._skipped(tool, part))
        except SchemaUnusable as error:
            self._give_up(tool, schema, error)
            return None
        self._ready[tool] = (schema, usable)
        return usable

    def _skipped(self, tool: str, part: str) -> None:
        logger.warning("output_partly_unchecked", server=self._server, tool=tool, part=self._redact(part))

    def _give_up(self, tool: str, schema: dict[str, Any], error: SchemaUnusable) -> None:
        """Results are not checked by this schema any more, which is logged once; they are returned unchecked."""
        logger.warning("output_schema_unusable", server=self._server, tool=tool, reason=str(error))
        self._ready[tool] = (schema, None)
