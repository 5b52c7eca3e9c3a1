"""``resources/list``, ``resources/templates/list`` and ``resources/read``."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gaia.agents.base.mcp_context import MCPCapabilityMissing
from gaia.log import get_logger
from gaia.mcp.server.calls import Calls
from gaia.mcp.server.failures import log_failure
from gaia.mcp.server.offering import Offering
from gaia.mcp.server.results import resource_result

__all__ = ["Resources"]

logger = get_logger(__name__)

LEGACY_NOT_FOUND = -32002
"""The code for a resource that does not exist up to revision 2025-11-25; later ones forbid it."""


class Resources:
    """The handlers for an agent's resources."""

    def __init__(self, offering: Offering, calls: Calls) -> None:
        self._offering = offering
        self._calls = calls

    async def list_all(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        definitions = await self._calls.plain(self._offering.get_mcp_resources)
        resources = []
        for definition in definitions:
            try:
                resources.append(types.Resource.model_validate(definition, by_name=False))
            except ValidationError as error:
                logger.error("resource_definition_invalid", uri=definition.get("uri"), error=str(error))
        return types.ListResourcesResult(resources=resources)

    async def list_templates(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        definitions = await self._calls.plain(self._offering.get_mcp_resource_templates)
        templates = []
        for definition in definitions:
            try:
                templates.append(types.ResourceTemplate.model_validate(definition, by_name=False))
            except ValidationError as error:
                logger.error("resource_template_invalid", uri=definition.get("uriTemplate"), error=str(error))
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        not_found = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else LEGACY_NOT_FOUND
        uri = str(params.uri)
        result: types.ReadResourceResult | types.InputRequiredResult = await self._calls.interactive(
            ctx, params, lambda: self._read(uri, not_found)
        )
        return result

    def _read(self, uri: str, not_found: int) -> Any:
        try:
            listed = next((one for one in self._offering.get_mcp_resources() if one.get("uri") == uri), {})
            value = self._offering.read_mcp_resource(uri)
            if isinstance(value, dict) and value.get("resultType") == "input_required":
                return value
            return resource_result(uri, listed.get("mimeType"), value)
        except (MCPError, MCPCapabilityMissing):
            raise
        except Exception as error:  # noqa: BLE001 - a resource is anybody's code
            if type(error) is ValueError:
                raise MCPError(not_found, "Resource not found", {"uri": uri}) from None
            log_failure(logger, "resource_failed", error, uri=uri)
            raise MCPError(types.INTERNAL_ERROR, "Resource could not be read", {"uri": uri}) from None
