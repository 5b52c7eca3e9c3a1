"""`ClientSide`: the part of a client that a server may use while it answers that client's request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.messages import Refusal

Answer = Callable[[dict[str, Any] | None, Refusal | None], None]
"""Called with the client's result, or with the reason why there is none."""


class ClientSide(Protocol):
    """One request of one client. For the gateway's event loop."""

    observation: Observation | None
    """Telemetry of the request to the server, once it is made; None if nothing is recorded."""

    @property
    def identity(self) -> str:
        """The client's name; "" if clients have no names."""

    @property
    def key(self) -> Hashable | None:
        """Equal for requests of the same client; None if the client is not known, as without sessions and names."""

    @property
    def is_stateless(self) -> bool:
        """Whether the client speaks the stateless era. Then it is not asked, but repeats its request with answers."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's declared capabilities, which say what it may be asked."""

    @property
    def log_level(self) -> str | None:
        """The least severe level of log messages that the client wants; None for none."""

    @property
    def wants_progress(self) -> bool:
        """Whether `progress` reaches the client."""

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether the client may call a tool with these annotations (None: not listed). For any thread."""

    def progress(self, params: dict[str, Any]) -> None:
        """Report progress. `params` are those of the server's notification; its token is replaced."""

    def log(self, params: dict[str, Any]) -> None:
        """Pass on a log message that belongs to this request, if the client wants it."""

    def ask(self, method: str, params: dict[str, Any], answer: Answer) -> Callable[[], None]:
        """Ask the client; `answer` is called once. Returns a function that withdraws the question. Raises `Refusal`."""


def offers(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities may be asked this."""
    if method == "roots/list":
        return "roots" in capabilities
    if method == "sampling/createMessage":
        sampling = capabilities.get("sampling")
        wants_tools = bool(params.get("tools") or params.get("toolChoice"))
        return sampling is not None and (not wants_tools or (isinstance(sampling, dict) and "tools" in sampling))
    if method == "elicitation/create":
        elicitation = capabilities.get("elicitation")
        if not isinstance(elicitation, dict):
            return False
        # Without modes, the client supports forms, as before modes existed. The server's mode may be any JSON value.
        return params.get("mode", "form") in tuple(elicitation or ("form",))
    return False
