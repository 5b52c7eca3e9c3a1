"""`Upstream`: one process of a server, as the gateway uses it."""

from __future__ import annotations

from typing import Any

from opentelemetry import context as contexts

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.gateway.upstream.client_side import ClientSide
from gaia.mcp.gateway.upstream.rounds import OngoingCall, Rounds
from gaia.mcp.gateway.upstream.sealing import binding_of
from gaia.mcp.protocol.exchange import Send
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.runtime.loop_work import LoopWork, running_loop_work
from gaia.telemetry import spans

_OPTIONS = CallOptions()


class Upstream:
    """Belongs to the gateway's event loop."""

    def __init__(self, client: MCPClient, rounds: Rounds | None = None) -> None:
        """`rounds` are those of the gateway; None: a new one."""
        self.client = client
        self.rounds = Rounds() if rounds is None else rounds
        """State between two rounds of a request."""
        self._work: LoopWork | None = None

    @property
    def work(self) -> LoopWork:
        """Runs work of other threads on the gateway's loop. First read it on the loop."""
        if self._work is None:
            self._work = running_loop_work()
        return self._work

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks the stateless era, as far as is known."""
        return self.client._engine.trips.is_stateless

    def binding(self, method: str, params: dict[str, Any], client: ClientSide) -> bytes:
        """The hash that ties a sealed state to its request."""
        return binding_of(self.client.name, client.identity, method, params)

    def parked(self, method: str, params: dict[str, Any], client: ClientSide) -> OngoingCall | None:
        """The parked call that these params continue; None if they begin a new one. Raises `SealBroken`.

        For a server of the stateless era, opens the state in `params`.
        """
        return self.rounds.opened(params, self.binding(method, params, client)) if "requestState" in params else None

    def new_exchange(self, method: str, params: dict[str, Any]) -> RequestExchange:
        """A request to the server. Raises `ToolDenied` for a tool that may not be called."""
        parent = None if spans.tracing_is_off() else spans.remote_parent(params.get("_meta"))
        if parent is None:
            return self._new_request(method, params)
        # The span of the request continues the client's trace.
        token = contexts.attach(parent)
        try:
            return self._new_request(method, params)
        finally:
            contexts.detach(token)

    def _new_request(self, method: str, params: dict[str, Any]) -> RequestExchange:
        if method == "tools/call":
            return self.client._engine.tool_calls.new_request(params["name"], params.get("arguments"), _OPTIONS, params)
        target = params.get("name")
        return self.client._engine.trips.new_request(
            Send(method, params, target=target if isinstance(target, str) else None)
        )
