"""Server features besides tools: resources, prompts, completions and log messages."""

from __future__ import annotations

from typing import Any

from gaia.mcp.errors import JsonRpcError, NotOffered
from gaia.mcp.protocol.exchange import Exchange, Send
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.tools.pins import PinGate, pins_of_prompts

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

Json = dict[str, Any]


class ServerFeatures:
    """Resources, prompts, completions and log messages of one server; `MCPClient` documents each method. Thread-safe.

    Each method returns an exchange, which `ClientRequests.run` runs in a thread and `gaia.mcp.aio` on a loop. The
    exchange raises the exceptions of `gaia.mcp.errors`.
    """

    def __init__(self, requests: ClientRequests, subscriptions: Subscriptions, prompt_gate: PinGate) -> None:
        self._requests = requests
        self._subscriptions = subscriptions
        self._prompt_gate = prompt_gate

    def adopt(self, prompt_gate: PinGate) -> None:
        self._prompt_gate = prompt_gate

    @property
    def prompts_are_pinned(self) -> bool:
        """Whether requests about prompts read the lock file of the pins between two steps."""
        return self._prompt_gate.mode != "off"

    def list_resources(self) -> Exchange[list[Json]]:
        return (yield from self._requests.list_all("resources/list", "resources"))

    def list_resource_templates(self) -> Exchange[list[Json]]:
        try:
            return (yield from self._requests.list_all("resources/templates/list", "resourceTemplates"))
        except JsonRpcError as error:
            # Many servers with resources have no templates and do not know this method.
            if error.code != METHOD_NOT_FOUND:
                raise
            return []

    def read_resource(self, uri: str) -> Exchange[Json]:
        return _result_of(Send("resources/read", {"uri": uri}))

    def subscribe_resource(self, uri: str) -> Exchange[None]:
        if self._lacks("resources", "subscribe"):
            raise NotOffered("the server does not tell changes of its resources")
        if not self._requests.is_stateless:
            yield Send("resources/subscribe", {"uri": uri})
        self._subscriptions.add_resource(uri)
        self._requests.session.subscriptions_changed()

    def unsubscribe_resource(self, uri: str) -> Exchange[None]:
        if uri not in self._subscriptions.resources:
            return
        self._subscriptions.remove_resource(uri)
        if not self._requests.is_stateless:
            yield Send("resources/unsubscribe", {"uri": uri})
        self._requests.session.subscriptions_changed()

    def list_prompts(self) -> Exchange[list[Json]]:
        listed: list[Json] = yield from self._requests.list_all("prompts/list", "prompts")
        if not self.prompts_are_pinned:
            return listed
        pins = pins_of_prompts(listed)
        withheld = self._prompt_gate.review_pins(pins, pins)
        # Filter the definitions that were compared: of two with the same name the last one counts.
        return [pin.definition for name, pin in pins.items() if name not in withheld]

    def get_prompt(self, name: str, arguments: dict[str, str] | None) -> Exchange[Json]:
        return self.request_prompt({"name": name, "arguments": arguments or {}}, None)

    def request(self, method: str, params: Json | None, timeout: float | None) -> Exchange[Json]:
        """Any request except a tool call. `timeout` is in seconds."""
        if method == "prompts/get":
            return self.request_prompt(params or {}, timeout)
        return _result_of(Send(method, params, timeout))

    def request_prompt(self, params: Json, timeout: float | None) -> Exchange[Json]:
        """Every request for a prompt passes here. A prompt that is not approved is refused."""
        name = params.get("name")
        if self._prompt_gate.blocks:
            offered = yield from self.list_prompts()
            if name not in [prompt["name"] for prompt in offered]:
                raise self._prompt_gate.refusal(str(name))
        return (yield from _result_of(Send("prompts/get", params, timeout, name if isinstance(name, str) else None)))

    def complete(self, ref: Json, argument: dict[str, str], context: dict[str, str] | None) -> Exchange[Json]:
        params: Json = {"ref": ref, "argument": argument}
        if context is not None:
            params["context"] = {"arguments": context}
        return _result_of(Send("completion/complete", params))

    def set_logging_level(self, level: str) -> Exchange[None]:
        if level not in LOG_LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LOG_LEVELS)}, got {level!r}")
        if self._lacks("logging"):
            raise NotOffered("the server does not offer log messages")
        if not self._requests.is_stateless:
            yield Send("logging/setLevel", {"level": level})
        self._subscriptions.set_log_level(level)
        self._requests.session.subscriptions_changed()

    def _lacks(self, capability: str, member: str | None = None) -> bool:
        """Whether the server's profile is known and lacks a capability, or a member of the capability."""
        profile = self._requests.session.profile
        if profile is None or member is None:
            return profile is not None and capability not in profile.capabilities
        declared = profile.capabilities.get(capability)
        return not (isinstance(declared, dict) and declared.get(member))


def _result_of(step: Send) -> Exchange[Json]:
    result: Json = yield step
    return result
