from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.client.session import BoundSession
from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.errors import NotConnected
from gaia.mcp.requests.exchange import RequestExchange
from gaia.testing import FakeClock
from tests.supervised import made
from tests.unit.mcp.cluster.test_placed_calls import Server


@pytest.fixture
def session() -> Iterator[BoundSession]:
    server = Server()
    of_client: Any = SimpleNamespace(profile="its profile", timeout=5.0)
    session = BoundSession(of_client, BoundCalls(server.calls, server.calls.bind(), None), FakeClock())
    yield session
    server.calls.close()
    assert session.is_lost


def test_it_is_the_clients_but_for_the_way_of_its_requests(session: BoundSession) -> None:
    assert (session.profile, session.timeout) == ("its profile", 5.0)
    assert session.is_connected()


def test_a_closed_one_makes_no_requests(session: BoundSession) -> None:
    session.close()
    with pytest.raises(NotConnected):
        made(session, RequestExchange("tools/call", {"name": "add"}))
