"""`Upstream`: one server as the rest of the gateway sees it: requests that are passed on, and how they end."""

from __future__ import annotations

from typing import Any

from opentelemetry import context as contexts

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.gateway.upstream.client_side import ClientSide
from gaia.mcp.gateway.upstream.relayed_call import RelayedCall
from gaia.mcp.gateway.upstream.rounds import OnEnd, OngoingCall, Relayed, Rounds
from gaia.mcp.gateway.upstream.sealing import SealBroken
from gaia.mcp.gateway.upstream.server_link import ServerLink
from gaia.mcp.protocol.exchange import Send
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.runtime.loop_work import running_loop_work
from gaia.telemetry import spans

_OPTIONS = CallOptions()


class Upstream:
    """Belongs to the gateway's event loop."""

    def __init__(self, client: MCPClient, rounds: Rounds | None = None) -> None:
        """`rounds` are those of the gateway; None: its own."""
        self.client = client
        self.rounds = Rounds() if rounds is None else rounds
        """What is between two rounds of a request."""
        self._link: ServerLink | None = None
        """From the first request on."""

    def request(self, method: str, params: dict[str, Any], client: ClientSide, on_end: OnEnd) -> OngoingCall | None:
        """Pass a request on. `on_end` is called once, perhaps before this returns, unless the call is cancelled.

        `params` may have members that are JSON already (`orjson.Fragment`), without any line end. None if the request
        could not be passed on, of which `on_end` has been told.
        """
        link = self._link
        if link is None:
            link = self._link = ServerLink(self.client, self.rounds, running_loop_work())
        try:
            if "requestState" in params:
                parked = self.rounds.opened(params, link.binding(method, params, client))
                if parked is not None:
                    parked.go_on(params, client, on_end)
                    return parked
            sent = self._request(method, params)
            call = RelayedCall(link, sent, params, client, on_end)
            if sent.observation is not None:
                client.observation = sent.observation
                if client.identity:
                    sent.observation.of_client(client.identity)
            call.start()
        except SealBroken as broken:
            on_end(Relayed(error=_not_sent(str(broken))))
        except ValueError as error:
            # What a client sends may be more than can be written. Some errors of calls are values, too.
            on_end(Relayed(error=error if isinstance(error, MCPError) else _not_sent(str(error))))
        except MCPError as error:
            on_end(Relayed(error=error))
        else:
            return call
        return None

    def _request(self, method: str, params: dict[str, Any]) -> RequestExchange:
        """Raises `ToolDenied` for a tool that may not be called."""
        parent = None if spans.tracing_is_off() else spans.remote_parent(params.get("_meta"))
        if parent is None:
            return self._new_request(method, params)
        # The span of the request goes on with the client's trace.
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


def _not_sent(text: str) -> JsonRpcError:
    error = JsonRpcError(INVALID_PARAMS, text)
    error.delivery = "not_sent"
    return error
