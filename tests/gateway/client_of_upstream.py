"""A client of a gateway as an `Upstream` sees it, without HTTP: what it is asked, and how its requests end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.gateway.upstream.relayed_call import RelayedCall, relay_error
from gaia.mcp.gateway.upstream.rounds import Answer, OngoingCall, Relayed, Rounds
from gaia.mcp.gateway.upstream.sealing import binding_of
from gaia.mcp.protocol.messages import Refusal
from gaia.testing import FakeServer
from tests.waiting import PATIENCE

Json = dict[str, Any]

EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


class Upstream(NamedTuple):
    """The client of a server, and the calls that wait for clients."""

    client: MCPClient
    rounds: Rounds


class Requester:
    """One request of one client, see `ClientSide`. Belongs to the test's loop."""

    key: object = None
    wants_progress = True
    deadline = None
    generation: int | None = None
    log_level: str | None = None

    def __init__(
        self, *, identity: str = "ann", is_stateless: bool = False, capabilities: Mapping[str, Any] = EVERYTHING
    ) -> None:
        self.identity = identity
        self.is_stateless = is_stateless
        self.capabilities = capabilities
        self.told: list[Json] = []
        """Progress and log messages."""
        self.asked: asyncio.Queue[tuple[str, Json, Answer]] = asyncio.Queue()
        self.withdrawn: list[str] = []
        self.ended: asyncio.Future[Relayed] = asyncio.get_running_loop().create_future()
        self.call: OngoingCall | None = None

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        return True

    def progress(self, params: Json) -> None:
        self.told.append(params)

    def log(self, params: Json) -> None:
        self.told.append(params)

    def ask(self, method: str, params: Json, answer: Answer) -> Callable[[], None]:
        self.asked.put_nowait((method, params, answer))
        return lambda: self.withdrawn.append(method)

    async def question(self) -> tuple[str, Json, Answer]:
        async with asyncio.timeout(PATIENCE):
            return await self.asked.get()

    # Its request.

    def send(self, upstream: Upstream, method: str, params: Json) -> Requester:
        rounds, on_end, parked = upstream.rounds, self.ended.set_result, None
        try:
            if "requestState" in params:
                parked = rounds.opened(params, binding_of(upstream.client.name, self.identity, method, params))
            if parked is not None:
                parked.go_on(params, self, on_end)
                self.call = parked
            else:
                call = RelayedCall(upstream.client, rounds, method, params, self, on_end)
                call.start()
                self.call = call
        except Exception as error:  # noqa: BLE001 - as the gateway does
            on_end(Relayed(error=relay_error(error)))
        return self

    async def relayed(self) -> Relayed:
        async with asyncio.timeout(PATIENCE):
            return await self.ended

    async def result(self) -> Json:
        relayed = await self.relayed()
        assert relayed.error is None, relayed.error
        decoded: Json = orjson.loads(relayed.result)
        return decoded

    async def text(self) -> str:
        return str((await self.result())["content"][0]["text"])


def call_of(tool: str, **arguments: Any) -> Json:
    return {"name": tool, "arguments": orjson.Fragment(orjson.dumps(arguments))}


REFUSED = Refusal(-32000, "not now")


@contextlib.asynccontextmanager
async def upstream_of(server: FakeServer | Mapping[str, Any], rounds: Rounds | None = None) -> AsyncIterator[Upstream]:
    """The upstream of a server that is ready."""
    manager = MCPClientManager({"one": server})
    manager._engine.factory.relay()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, manager.load_from_config)
    client = manager._engine.registry.client_of("one")
    assert client is not None
    assert client.is_connected(), client.last_error
    try:
        yield Upstream(client, Rounds() if rounds is None else rounds)
    finally:
        await loop.run_in_executor(None, manager.disconnect_all)
