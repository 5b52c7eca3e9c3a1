from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import Launch
from gaia.mcp.config.placement import Placement
from tests.hosts import LocalEngine, LocalLink
from tests.waiting import PATIENCE

Place = Callable[..., MCPClient]


@pytest.fixture
def engine() -> LocalEngine:
    return LocalEngine()


@pytest.fixture
def place(engine: LocalEngine) -> Iterator[Place]:
    """Make a client of a server that an engine places."""
    clients: list[MCPClient] = []
    engines: list[Any] = []

    def make(
        server: dict[str, Any],
        engine: Any = engine,
        start_timeout: float | None = None,
        lease: float = 30,
        placement: Placement | None = None,
        **options: Any,
    ) -> MCPClient:
        engines.append(engine)
        launch = Launch(command=server["command"], args=server["args"], env=server.get("env"))
        placement = placement or Placement(lease=lease)
        transport = PlacedTransport(placement, PATIENCE, lambda: launch, lambda: engine)
        client = MCPClient("it", transport, start_timeout=start_timeout, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.disconnect()
    for used in engines:
        if isinstance(used, LocalEngine):
            used.close()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Ray says of this program: it has not joined a cluster, and must not do so because it is asked."""
    ray = pytest.importorskip("ray")
    from gaia.mcp.cluster import ray_session

    worker = SimpleNamespace(mode=ray.SCRIPT_MODE)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(worker=worker))
    monkeypatch.setattr(ray_session, "identity", lambda: ("node", "job"))
    return worker


def link_of(engine: LocalEngine) -> LocalLink:
    assert engine.link is not None
    return engine.link


def add(client: MCPClient, **options: Any) -> Any:
    return client.call_tool("add", {"a": 1, "b": 2}, **options).get("structuredContent")
