"""``prompts/list``, ``prompts/get`` and ``completion/complete``."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from gaia.agents.base.mcp_context import MCPCapabilityMissing
from gaia.log import get_logger
from gaia.mcp.server.calls import Calls
from gaia.mcp.server.failures import log_failure
from gaia.mcp.server.offering import Offering
from gaia.mcp.server.results import prompt_result

__all__ = ["Prompts"]

logger = get_logger(__name__)

MAX_COMPLETIONS = 100
"""The protocol's limit for one answer."""


class Prompts:
    """The handlers for an agent's prompts."""

    def __init__(self, offering: Offering, calls: Calls) -> None:
        self._offering = offering
        self._calls = calls

    async def list_all(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        definitions = await self._calls.plain(self._offering.get_mcp_prompts)
        prompts = []
        for definition in definitions:
            try:
                prompts.append(types.Prompt.model_validate(definition, by_name=False))
            except ValidationError as error:
                logger.error("prompt_definition_invalid", prompt=definition.get("name"), error=str(error))
        return types.ListPromptsResult(prompts=prompts)

    async def get(
        self, ctx: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        result: types.GetPromptResult | types.InputRequiredResult = await self._calls.interactive(
            ctx, params, lambda: self._get(params.name, params.arguments or {})
        )
        return result

    async def complete(
        self, _ctx: ServerRequestContext[Any, Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        reference = params.ref.model_dump(by_alias=True, mode="json", exclude_none=True)
        given = dict(params.context.arguments or {}) if params.context else {}
        argument = params.argument
        values = await self._calls.plain(
            lambda: self._offering.complete_mcp_argument(reference, argument.name, argument.value, given)
        )
        completion = types.Completion(
            values=[str(value) for value in values[:MAX_COMPLETIONS]],
            total=len(values),
            has_more=len(values) > MAX_COMPLETIONS,
        )
        return types.CompleteResult(completion=completion)

    def _get(self, name: str, arguments: dict[str, str]) -> Any:
        definition = next((one for one in self._offering.get_mcp_prompts() if one.get("name") == name), None)
        if definition is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
        required = [one["name"] for one in definition.get("arguments") or [] if one.get("required")]
        if missing := [argument for argument in required if argument not in arguments]:
            raise MCPError(types.INVALID_PARAMS, f"Prompt {name} needs: {', '.join(missing)}")
        try:
            value = self._offering.get_mcp_prompt(name, arguments)
            if isinstance(value, dict) and value.get("resultType") == "input_required":
                return value
            return prompt_result(value)
        except (MCPError, MCPCapabilityMissing):
            raise
        except Exception as error:  # noqa: BLE001 - a prompt is anybody's code
            if type(error) is ValueError:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            log_failure(logger, "prompt_failed", error, prompt=name)
            raise MCPError(types.INTERNAL_ERROR, f"Prompt {name} failed") from None
