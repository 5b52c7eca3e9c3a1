"""What servers say about themselves, and what they offer besides tools: resources, prompts and completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.exchange import Exchange, Notify, Send, SetProtocolVersion, drive, paginate
from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.client.protocol.stateless_era import STATELESS_REVISIONS
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.errors import JsonRpcError, NotOffered

__all__ = ["ServerFeatures"]

_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_MAX_INSTRUCTIONS = 64 * 1024
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

    @abstractmethod
    def _forget(self, method: str) -> bool:
        """Forget the answers to a method that were kept. Whether there were any."""

    @abstractmethod
    def _subscriptions_changed(self) -> None:
        """Have the server told what is in `interests`."""

    subscriptions: Subscriptions

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
        return None if instructions is None else instructions[:_MAX_INSTRUCTIONS]

    def list_resources(self) -> list[dict[str, Any]]:
        """``{"uri": …, "name": …}`` each, and what the server adds of title, description, mimeType, size."""
        return self._list("resources/list", "resources")

    def list_resource_templates(self) -> list[dict[str, Any]]:
        """``{"uriTemplate": …, "name": …}`` each, and what the server adds of title, description, mimeType."""
        return self._list("resources/templates/list", "resourceTemplates")

    def read_resource(self, uri: str) -> dict[str, Any]:
        """``{"contents": [{"uri": …, "mimeType": …, "text": … or "blob": …}]}``; a blob is in Base64."""
        return self.request("resources/read", {"uri": uri})

    def subscribe_resource(self, uri: str) -> None:
        """Hear of changes of a resource, as `ResourceUpdated` events, until it is unsubscribed.

        Restarts of the server do not end it. Raises NotOffered if the server does not tell changes.
        """
        self._require_subscriptions()
        if not self._is_stateless:
            self.request("resources/subscribe", {"uri": uri})
        self.subscriptions.add_resource(uri)
        self._subscriptions_changed()

    def unsubscribe_resource(self, uri: str) -> None:
        """Hear no more of it; harmless if it was not subscribed."""
        if uri not in self.subscriptions.resources:
            return
        self.subscriptions.remove_resource(uri)
        if not self._is_stateless:
            self.request("resources/unsubscribe", {"uri": uri})
        self._subscriptions_changed()

    def list_prompts(self) -> list[dict[str, Any]]:
        """``{"name": …, "title": …, "description": …, "arguments": [{"name": …, "required": …}]}`` each."""
        return self._list("prompts/list", "prompts")

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """``{"description": …, "messages": [{"role": …, "content": …}]}``."""
        return self.request("prompts/get", {"name": name, "arguments": arguments or {}})

    def complete(
        self, ref: dict[str, Any], argument: dict[str, str], *, context: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """``{"completion": {"values": […], "total": …, "hasMore": …}}`` for the `argument` ``{"name": …, "value": …}``.

        `ref` is ``{"type": "ref/prompt", "name": …}`` or ``{"type": "ref/resource", "uri": …}``; `context` are the
        arguments that have values already.
        """
        params: dict[str, Any] = {"ref": ref, "argument": argument}
        if context is not None:
            params["context"] = {"arguments": context}
        return self.request("completion/complete", params)

    def set_logging_level(self, level: str) -> None:
        """Hear of the server's log messages of this severity and above, as `ServerLog` events; also after restarts.

        `level` is one of debug, info, notice, warning, error, critical, alert, emergency; anything else is a
        ValueError. Raises NotOffered if the server does not send log messages.
        """
        if level not in _LOG_LEVELS:
            raise ValueError(f"level: expected one of {', '.join(_LOG_LEVELS)}, got {level!r}")
        if self._profile is not None and "logging" not in self.capabilities:
            raise NotOffered("the server does not offer log messages")
        if not self._is_stateless:
            self.request("logging/setLevel", {"level": level})
        self.subscriptions.set_log_level(level)
        self._subscriptions_changed()

    @property
    def _is_stateless(self) -> bool:
        return self.protocol_version in STATELESS_REVISIONS

    def _require_subscriptions(self) -> None:
        resources = self.capabilities.get("resources")
        if self._profile is not None and not (isinstance(resources, dict) and resources.get("subscribe")):
            raise NotOffered("the server does not tell changes of its resources")

    def _list(self, method: str, key: str) -> list[Any]:
        try:
            return self._drive(paginate(method, key))
        except JsonRpcError as error:
            # A cursor of a page that was kept may mean nothing any more ("Caching").
            if error.code != INVALID_PARAMS or not self._forget(method):
                raise
            return self._drive(paginate(method, key))

    def _drive(self, exchange: Exchange[list[Any]]) -> list[Any]:
        def send(step: Send) -> dict[str, Any]:
            return self.request(step.method, step.params, timeout=step.timeout)

        def tell(step: Notify | SetProtocolVersion) -> None:
            raise AssertionError(f"a list does not take the step {step!r}")

        return drive(exchange, send, tell)
