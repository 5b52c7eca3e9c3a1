"""One server as the front sees it: requests that are passed on, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from gaia.mcp.aio.loop_inbox import running_loop_inbox
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.protocol.messages import Refusal
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.caller import CallFuture
from gaia.mcp.client.supervision.client_request import CallOptions, ClientRequest
from gaia.mcp.errors import CallCancelled, MCPError

__all__ = ["ClientSide", "Relayed", "RelayedCall", "Upstream"]


class ClientSide(Protocol):
    """What a server can reach of the client whose request it answers. For the front's event loop."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client has declared, and so what it may be asked."""

    @property
    def wants_progress(self) -> bool:
        """Whether `progress` leads anywhere."""

    def progress(self, params: dict[str, Any]) -> None:
        """Report progress; `params` as in the server's notification, whose token does not count."""

    def log(self, params: dict[str, Any]) -> None:
        """Pass on a log message, if the client wants it."""

    def ask(
        self, method: str, params: dict[str, Any], answer: Callable[[dict[str, Any] | None, Refusal | None], None]
    ) -> Callable[[], None]:
        """Ask the client; `answer` gets its result or why there is none. Returns a function that withdraws it."""


class Relayed(msgspec.Struct, frozen=True):
    """How a request ended: the result as JSON, or an error with its delivery."""

    result: bytes = b""
    error: MCPError | None = None


class RelayedCall:
    """A request under way."""

    def __init__(self, future: CallFuture) -> None:
        self._future = future

    def cancel(self, _reason: str) -> None:
        """Harmless if it has ended."""
        self._future.cancel()


class Upstream:
    """For the front's event loop."""

    def __init__(self, client: MCPClient) -> None:
        self.client = client

    def request(
        self, method: str, params: dict[str, Any], client: ClientSide, on_end: Callable[[Relayed], None]
    ) -> RelayedCall | None:
        """Pass on a request. `on_end` is called on the loop, once, perhaps before this returns."""
        inbox = running_loop_inbox()
        lane = Lane(lambda lane: inbox.post(lane.run))
        try:
            decoded = orjson.loads(orjson.dumps(params))
            on_progress = None
            if client.wants_progress:

                def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    told = {"progress": progress, "total": total, "message": message}
                    inbox.post(lambda: client.progress({key: one for key, one in told.items() if one is not None}))

            options = CallOptions(on_progress=on_progress)
            if method == "tools/call":
                request = self.client.tool_calls.new_request(decoded["name"], decoded.get("arguments"), options)
                request = msgspec.structs.replace(request, params=decoded)
            else:
                request = ClientRequest(method, decoded, options)
            future = self.client.trips.submit(request, lane)
        except MCPError as error:
            on_end(Relayed(error=error))
            return None
        except ValueError as error:
            on_end(Relayed(error=MCPError(str(error))))
            return None

        def end() -> None:
            if future.cancelled():
                on_end(Relayed(error=CallCancelled("cancelled")))
            elif (error := future.exception()) is not None:
                assert isinstance(error, MCPError)
                on_end(Relayed(error=error))
            else:
                on_end(Relayed(orjson.dumps(future.answer)))

        future.on_end(lambda: inbox.post(end))
        return RelayedCall(future)
