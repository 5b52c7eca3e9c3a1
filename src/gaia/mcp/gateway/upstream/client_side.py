"""`ClientSide`: what a server can reach of the client whose request it answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.messages import Refusal

Answer = Callable[[dict[str, Any] | None, Refusal | None], None]
"""Told the client's result, or why there is none."""


class ClientSide(Protocol):
    """One request of one client. For the gateway's event loop."""

    observation: Observation | None
    """Of the request to the server, once that is made; None if nothing is recorded."""

    @property
    def identity(self) -> str:
        """What tells this client from others: its name, "" if there are no clients with names."""

    @property
    def key(self) -> Hashable | None:
        """Equal for requests of the same client; None if that is not known, as without sessions and without names."""

    @property
    def is_stateless(self) -> bool:
        """Whether the client speaks the stateless era: then it is not asked, but sends its request again."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client has declared, and so what it may be asked."""

    @property
    def log_level(self) -> str | None:
        """The least severe log messages that the client wants; None if it wants none."""

    @property
    def wants_progress(self) -> bool:
        """Whether `progress` leads anywhere."""

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether the client may call a tool with these annotations; None: it is not listed. For any thread."""

    def progress(self, params: dict[str, Any]) -> None:
        """Report progress; `params` as in the server's notification, whose token does not count."""

    def log(self, params: dict[str, Any]) -> None:
        """Pass on a log message that belongs to this request, if the client wants it."""

    def ask(self, method: str, params: dict[str, Any], answer: Answer) -> Callable[[], None]:
        """Ask the client; `answer` is called once. Returns a function that withdraws it. Raises `Refusal`."""


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
        # Without any mode it is forms, as before there were modes. A server may ask for what is no mode.
        return params.get("mode", "form") in tuple(elicitation or ("form",))
    return False
