"""A client of a scripted server, connected, in its asynchronous form; and a loop that lasts a whole test."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.client import MCPClient
from tests.fake_transport import FakeChannel, FakeTransport
from tests.waiting import PATIENCE

T = TypeVar("T")


class Faked:
    """A client of a server that is only a list of messages."""

    def __init__(self, **settings: Any) -> None:
        self.transport = FakeTransport(answers=settings.pop("answers", None))
        settings = {"protocol": "handshake", "health_interval": 1_000_000.0, **settings}
        self.sync = MCPClient("fake", self.transport, **settings)
        self.client = AsyncMCPClient.over(self.sync)
        assert self.sync.connect(), self.sync.last_error

    @property
    def channel(self) -> FakeChannel:
        return self.transport.channel(self.transport.starts)

    async def calls(self, count: int, method: str = "tools/call") -> list[dict[str, Any]]:
        """Wait until so many requests were written; other tasks run meanwhile."""
        return await until(lambda: self.channel.requests(method), count)

    def answer(self, request: dict[str, Any], text: str) -> None:
        self.channel.answer(request, {"content": [{"type": "text", "text": text}]})


async def until(found: Callable[[], list[T]], count: int) -> list[T]:
    while len(found()) < count:
        await asyncio.sleep(0.001)
    return found()


@pytest.fixture
def fake() -> Iterator[Callable[..., Faked]]:
    made: list[Faked] = []

    def make(**settings: Any) -> Faked:
        made.append(Faked(**settings))
        return made[-1]

    yield make
    for one in made:
        one.sync.disconnect()


@pytest.fixture
def faked(fake: Callable[..., Faked]) -> Faked:
    return fake()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, on a loop of its own; fails if it hangs."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))
