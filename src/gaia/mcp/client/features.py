"""What servers say about themselves, and what they offer besides tools: resources, prompts and completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.exchange import Exchange, Notify, Send, Speak, drive, paginate

__all__ = ["ServerFeatures"]

_LONGEST_INSTRUCTIONS = 64 * 1024
"""Characters: more would fill a model's context by itself."""


class ServerFeatures(ABC):
    """The part of a client that needs nothing but its `request`. Methods raise the exceptions of `gaia.mcp.errors`."""

    @property
    @abstractmethod
    def _profile(self) -> ServerProfile | None:
        """What the server told in its last handshake."""

    @abstractmethod
    def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result object."""

    @property
    def server_info(self) -> dict[str, Any]:
        """Name and version that the server gave in its handshake; empty before the first one."""
        profile = self._profile
        return {} if profile is None else dict(profile.server_info)

    @property
    def protocol_version(self) -> str | None:
        profile = self._profile
        return None if profile is None else profile.protocol_version

    @property
    def capabilities(self) -> dict[str, Any]:
        profile = self._profile
        return {} if profile is None else dict(profile.capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's hints for a model. They come from the server, so they are as trustworthy as the server.

        At most 64 Ki characters of them.
        """
        profile = self._profile
        instructions = None if profile is None else profile.instructions
        return None if instructions is None else instructions[:_LONGEST_INSTRUCTIONS]

    def list_resources(self) -> list[dict[str, Any]]:
        return self._drive(paginate("resources/list", "resources"))

    def list_resource_templates(self) -> list[dict[str, Any]]:
        return self._drive(paginate("resources/templates/list", "resourceTemplates"))

    def read_resource(self, uri: str) -> dict[str, Any]:
        """``{"contents": [{"uri": …, "text": … or "blob": …}]}``."""
        return self.request("resources/read", {"uri": uri})

    def list_prompts(self) -> list[dict[str, Any]]:
        return self._drive(paginate("prompts/list", "prompts"))

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """``{"description": …, "messages": [{"role": …, "content": …}]}``."""
        return self.request("prompts/get", {"name": name, "arguments": arguments or {}})

    def complete(self, ref: dict[str, Any], argument: dict[str, str]) -> dict[str, Any]:
        """Completions for ``{"name": …, "value": …}`` of a prompt or resource template reference."""
        return self.request("completion/complete", {"ref": ref, "argument": argument})

    def _drive(self, exchange: Exchange[list[Any]]) -> list[Any]:
        def send(step: Send) -> dict[str, Any]:
            return self.request(step.method, step.params, timeout=step.timeout)

        def tell(step: Notify | Speak) -> None:
            raise AssertionError(f"a list does not take the step {step!r}")

        return drive(exchange, send, tell)
