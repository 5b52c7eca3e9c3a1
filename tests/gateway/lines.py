"""A gateway in the test's own event loop, asked line by line, without HTTP."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.front.line_client import LineClient
from tests.waiting import PATIENCE

META = "io.modelcontextprotocol/"
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
STATELESS = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}


class Lines:
    """One client. Belongs to the test's event loop."""

    def __init__(self, gateway: Gateway, *, stateless: bool) -> None:
        self.gateway = gateway
        self.client: LineClient = gateway.line_client(self._took)
        self.told: list[dict[str, Any]] = []
        """Notifications and requests of the gateway."""
        self._stateless = stateless
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._arrived = asyncio.Event()

    def _took(self, message: bytes) -> None:
        decoded = json.loads(message)
        if "method" in decoded:
            self.told.append(decoded)
            self._arrived.set()
        elif decoded["id"] in self._answers:
            self._answers[decoded["id"]].set_result(decoded)

    def send(self, message: Mapping[str, Any]) -> None:
        self.client.received(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def begin(self, method: str, params: Mapping[str, Any] | None = None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Send a request: its id and its response to come."""
        params = dict(params or {})
        if self._stateless:
            params["_meta"] = {**STATELESS, **params.get("_meta", {})}
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.send({"id": number, "method": method, "params": params})
        return number, answer

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request, or its error: ``{"code": …}``."""
        _, answer = self.begin(method, params)
        message = await asyncio.wait_for(answer, PATIENCE)
        return message.get("result", message.get("error"))

    async def wait_told(self, method: str) -> dict[str, Any]:
        """The next notification of a method; it is taken out of `told`."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for message in self.told:
                    if message["method"] == method:
                        self.told.remove(message)
                        return message
                self._arrived.clear()
                await self._arrived.wait()

    async def open(self) -> Any:
        """The handshake, in that era."""
        result = await self.ask("initialize", OPENING)
        self.send({"method": "notifications/initialized"})
        return result


@contextlib.asynccontextmanager
async def asking(servers: Mapping[str, Any] | Gateway, *, stateless: bool = True) -> AsyncIterator[Lines]:
    """A client of a gateway with these servers; one of the handshake era has opened."""
    gateway = servers if isinstance(servers, Gateway) else Gateway(servers)
    async with gateway:
        lines = Lines(gateway, stateless=stateless)
        if not stateless:
            await lines.open()
        yield lines
        lines.client.end()
