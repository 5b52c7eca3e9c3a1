"""`MCPContext`: the MCP request that an agent is answering, with progress, log messages and questions to the client.

`MCPAgent.mcp_context` is the context of the current thread. Outside of a request, for example in a unit test, it has no
client: progress and log messages are dropped, and no capability is supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from gaia.runtime.cancellation import CancelScope

CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class MCPRequestCancelled(Exception):
    """The client no longer wants the answer. Agents catch it only to clean up, and raise it again."""


class MCPCapabilityMissing(Exception):
    """The client did not declare support for this question. Uncaught, it becomes the protocol's error.

    `capability` is a name such as ``sampling``, or a path such as ``elicitation.url``.
    """

    def __init__(self, capability: str) -> None:
        super().__init__(f"The client does not support {capability}")
        self.capability = capability


class InputRequired(BaseException):
    """Ends a call that needs the client's answers, with which the client calls again. For the server, not for agents.

    Not an Exception, so that an agent's ``except Exception`` does not catch it.
    """

    def __init__(self, requests: dict[str, dict[str, Any]]) -> None:
        super().__init__("waiting for answers of the client")
        self.requests = requests


class MCPContext:
    """One request of an MCP client. All methods are synchronous, and may be called from any thread.

    **Questions to the client** (`elicit`, `elicit_url`, `sample`, `list_roots`, `ask`) look the same in both eras of
    the protocol. But since 2026-07-28 a server cannot wait for an answer: the call ends at the question, and the client
    calls again with the answer. So a tool that asks runs again *from its beginning*, finds its earlier answers, and
    continues. Code before a question must tolerate repetition.

    An answer is found by its key. Without a ``key``, questions of a kind are numbered in the order of asking.
    """

    method: str = ""
    """The request's method, such as ``tools/call``; empty outside of a request."""
    request_id: str | int | None = None
    """The client's id of the request."""
    protocol_version: str | None = None
    """The protocol revision that the client speaks."""
    client_info: Mapping[str, Any] = {}
    """The client's own name and version."""
    client_capabilities: Mapping[str, Any] = {}
    """The client's declared capabilities; see `supports`."""
    answers: Mapping[str, dict[str, Any]] = {}
    """Answers that came with the request, for an agent that returns ``{"resultType": "input_required", …}`` itself."""
    request_state: str | None = None
    """The ``requestState`` of such an agent; clients cannot read or change it."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self.scope = CancelScope()
        """Calls to MCP servers in this scope are cancelled with the request."""

    @property
    def cancelled(self) -> bool:
        """Whether the client has cancelled the request or disconnected. A long call should check it repeatedly."""
        return self.scope.cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `MCPRequestCancelled` if the request was cancelled or the client has disconnected."""
        if self.cancelled:
            raise MCPRequestCancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Run `callback` on another thread if the request is cancelled. It must return at once.

        Calls to MCP servers need no callback, because they are cancelled with the request.
        """
        self.scope.on_cancel(callback)

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the call to a client that asked for it; `progress` must grow."""

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of this level.

        Levels are debug, info, notice, warning, error, critical, alert and emergency.
        """

    def supports(self, capability: str) -> bool:
        """Whether the client declared ``elicitation``, ``sampling``, ``roots`` or another capability."""
        return capability in self.client_capabilities

    def elicit(self, message: str, schema: dict[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Let the user fill in a form: ``{"action": "accept" | "decline" | "cancel", "content": {...}}``."""
        return self._ask_one("elicitation/create", {"message": message, "requestedSchema": schema}, key)

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> dict[str, Any]:
        """Send the user to a page. ``{"action": ...}`` is whether the user agreed to go there."""
        key = self._key("elicitation/create", key)
        params = {"mode": "url", "message": message, "url": url, "elicitationId": f"{self.request_id}-{key}"}
        return self._ask_one("elicitation/create", params, key)

    def sample(
        self, messages: list[dict[str, Any]], max_tokens: int, *, key: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Let the client's model complete `messages`: ``{"role", "content", "model", "stopReason"}``.

        `options` are further parameters of ``sampling/createMessage``, with its names.
        """
        params = {"messages": messages, "maxTokens": max_tokens, **options}
        return self._ask_one("sampling/createMessage", params, key)

    def list_roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """The folders to which the client gives its servers access, each as ``{"uri", "name"}``."""
        roots: list[dict[str, Any]] = self._ask_one("roots/list", {}, key).get("roots") or []
        return roots

    def ask(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Ask several questions at once: ``{key: {"method": ..., "params": ...}}`` to ``{key: answer}``.

        Raises `MCPCapabilityMissing` for a question that the client cannot be asked.
        """
        for request in requests.values():
            raise MCPCapabilityMissing(CAPABILITIES.get(request["method"], request["method"]))
        return {}

    def _ask_one(self, method: str, params: dict[str, Any], key: str | None) -> dict[str, Any]:
        key = self._key(method, key)
        return self.ask({key: {"method": method, "params": params}})[key]

    def _key(self, method: str, key: str | None) -> str:
        if key is not None:
            return key
        self._asked[method] = self._asked.get(method, 0) + 1
        return f"{CAPABILITIES[method]}-{self._asked[method]}"


current_mcp_context: ContextVar[MCPContext | None] = ContextVar("gaia_mcp_context", default=None)


class ServableAgent(Protocol):
    """The methods of `MCPAgent` that a server calls. `gaia.mcp.mcp_bridge.MCPBridge` has them too."""

    def offers_mcp(self, what: str) -> bool: ...
    def get_mcp_server_info(self) -> dict[str, Any]: ...
    def get_mcp_instructions(self) -> str: ...
    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]: ...
    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]: ...
    def get_mcp_prompts(self) -> list[dict[str, Any]]: ...
    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any: ...
    def get_mcp_resources(self) -> list[dict[str, Any]]: ...
    def get_mcp_resource_templates(self) -> list[dict[str, Any]]: ...
    def read_mcp_resource(self, uri: str) -> Any: ...
    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]: ...
    def set_mcp_logging_level(self, level: str) -> None: ...
    def add_mcp_listener(self, listener: Callable[[str, str | None], None]) -> Callable[[], None]: ...
