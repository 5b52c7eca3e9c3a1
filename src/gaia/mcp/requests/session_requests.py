"""What requests need of a client's way to its server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.requests.caller import CallFuture, GoesOn, Outcome, Relay
from gaia.mcp.requests.client_request import ClientRequest
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.rpc.call import ProgressSink
from gaia.mcp.rpc.relayed_request import RelayedRequest, RequestOwner


class Requests(Protocol):
    """What requests need of a session. Thread-safe. A request without a `timeout` gets the transport's own."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def timeout(self) -> float:
        """Seconds, for requests without a timeout of their own; infinite if only the transport knows."""

    @property
    def waits_in_caller(self) -> bool:
        """Whether `submit` waits for the answer in its own thread."""

    def is_connected(self) -> bool: ...

    @property
    def request(self) -> Callable[[ClientRequest], Outcome]:
        """Make a request and wait for its result object. Raises `MCPError`."""

    def subscriptions_changed(self) -> None:
        """The client wants other changes or log messages of the server than before (`Subscriptions`)."""

    def submit(self, request: ClientRequest, future: CallFuture, goes_on: GoesOn) -> None:
        """Make a request without waiting, for `future`; see `Caller.submit`."""

    def relay(
        self,
        request: ClientRequest,
        owner: RequestOwner,
        on_done: Callable[[RelayedRequest], None],
        on_progress: ProgressSink | None,
    ) -> Relay:
        """Make a request for a client of a gateway; see `Caller.relay`. Raises NotConnected.

        Raises NotOffered if the transport cannot do this.
        """

    def watch(self, input_requests: InputRequests) -> None:
        """End the requests for input at their deadline."""
