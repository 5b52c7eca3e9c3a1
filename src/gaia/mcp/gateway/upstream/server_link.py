"""`ServerLink`: what all calls to one server behind the gateway share."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.gateway.upstream.client_side import ClientSide
from gaia.mcp.gateway.upstream.rounds import Rounds
from gaia.mcp.gateway.upstream.sealing import binding_of
from gaia.runtime.loop_work import LoopWork

T = TypeVar("T")


class ServerLink:
    """Made on the thread of the gateway's event loop. `post`, and what `on_loop` makes, are for any thread."""

    def __init__(self, client: MCPClient, rounds: Rounds, inbox: LoopWork) -> None:
        self.client = client
        self.rounds = rounds
        self.loop = inbox
        self.post = inbox.post
        """Runs a task on the loop, soon."""
        self._thread = threading.get_ident()

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks the stateless era, as far as it is known."""
        return self.client._engine.trips.is_stateless

    def binding(self, method: str, params: Mapping[str, Any], client: ClientSide) -> bytes:
        """What the state of a request belongs to."""
        return binding_of(self.client.name, client.identity, method, params)

    def run(self, task: Callable[[], object]) -> None:
        """Run a task on the loop: at once, if this is the loop's thread, so that answers do not overtake it."""
        if threading.get_ident() == self._thread:
            task()
        else:
            self.post(task)

    def on_loop(self, function: Callable[[T], None]) -> Callable[[T], None]:
        """A function that runs `function` on the loop: at once, if it is called on the loop's thread."""

        def run(value: T) -> None:
            if threading.get_ident() == self._thread:
                function(value)
            else:
                self.post(functools.partial(function, value))

        return run
