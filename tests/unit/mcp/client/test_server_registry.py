"""Who is one of a manager's servers, whatever comes between a start and its end. The clients are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from gaia.mcp.client.readiness import Readiness
from gaia.mcp.client.server_registry import ServerRegistry
from gaia.mcp.errors import ServerUnavailable, UnknownTool
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools import naming
from gaia.mcp.tools.tool import MCPTool

ADD = MCPTool("add", "Adds numbers.", {"type": "object"})


def make_client(connect: Callable[[], bool] = lambda: True) -> Mock:
    client = Mock(denied_tools=frozenset(), blocked_tools={}, keeps_trying=False)
    client.connect.side_effect = lambda **_: connect()
    client.status = ServerStatus(name="calc", state=ServerState.READY)
    return client


@pytest.fixture
def joined() -> list[tuple[str, tuple[MCPTool, ...]]]:
    return []


@pytest.fixture
def registry(joined: list[tuple[str, tuple[MCPTool, ...]]]) -> ServerRegistry:
    return ServerRegistry(Readiness(), lambda name, tools: joined.append((name, tools)))


class TestJoining:
    def test_a_name_is_taken_from_the_reservation_on(self, registry: ServerRegistry) -> None:
        registry.reserve("calc", make_client())
        assert "calc" in registry
        assert registry.is_starting("calc")
        assert registry.connected == {}
        with pytest.raises(ValueError, match="already exists"):
            registry.reserve("calc", make_client())

    def test_tools_can_be_called_once_the_server_has_joined(
        self, registry: ServerRegistry, joined: list[tuple[str, tuple[MCPTool, ...]]]
    ) -> None:
        def connect() -> bool:
            registry.tools_listed("calc", client, (ADD,))
            assert registry.routes == {}
            return True

        client = make_client(connect)
        registry.reserve("calc", client)
        assert registry.connect("calc", client)
        assert joined == [("calc", (ADD,))]
        assert registry.routes["mcp_calc_add"].client is client
        assert registry.routes["mcp_calc_add"].tool.namespaced_name == "mcp_calc_add"

    def test_whoever_asks_while_a_server_joins_finds_the_way_to_its_tools(
        self, registry: ServerRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = make_client()
        rebuild, answers = registry._rebuild_routes, list[object]()

        def asked_before() -> None:
            monkeypatch.setattr(registry, "_rebuild_routes", rebuild)
            assert registry.connected == {"calc": client}
            assert registry.routes == {}
            answers.append(registry.route_to_absent("mcp_calc_add"))

        registry.reserve("calc", client)
        registry.tools_listed("calc", client, (ADD,))
        monkeypatch.setattr(registry, "_rebuild_routes", asked_before)
        registry.connect("calc", client)
        assert answers == [registry.routes["mcp_calc_add"]]

    def test_the_names_of_all_tools_are_worked_out_once_for_each_server(
        self, registry: ServerRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assign = Mock(side_effect=naming.assign)
        monkeypatch.setattr("gaia.mcp.client.server_registry.assign", assign)
        for number in range(5):
            name, client = f"s{number}", make_client()
            registry.reserve(name, client)
            registry.tools_listed(name, client, (ADD,))
            registry.connect(name, client)
        assert assign.call_count == 5
        assert list(registry.routes) == [f"mcp_s{number}_add" for number in range(5)]

    def test_a_failure_is_kept_until_it_is_forgotten(self, registry: ServerRegistry) -> None:
        client = make_client(lambda: False)
        registry.reserve("calc", client)
        assert not registry.connect("calc", client)
        assert "calc" not in registry
        assert registry.status() == [client.status]
        registry.forget_failure("calc")
        assert registry.status() == []

    def test_an_unusable_configuration_does_not_hide_a_server_that_works(self, registry: ServerRegistry) -> None:
        client = make_client()
        registry.reserve("calc", client)
        registry.refused("calc", "no command")
        registry.refused("other", "no command")
        assert {status.name: status.last_error for status in registry.status()} == {"calc": None, "other": "no command"}


class TestWaiting:
    """Servers that could not be connected and are tried again."""

    @pytest.fixture
    def client(self, registry: ServerRegistry) -> Mock:
        client = make_client(lambda: False)
        client.keeps_trying = True
        registry.reserve("calc", client)
        assert not registry.connect("calc", client, keep_trying=True)
        return client

    def test_their_names_are_free(self, registry: ServerRegistry, client: Mock) -> None:
        assert "calc" not in registry
        assert registry.is_starting("calc")
        assert registry.client_of("calc") is client
        assert registry.status() == [client.status]

    def test_they_join_when_they_are_ready(self, registry: ServerRegistry, client: Mock) -> None:
        registry.tools_listed("calc", client, (ADD,))
        assert registry.routes == {}
        assert registry.came_up("calc", client) == (ADD,)
        assert registry.connected == {"calc": client}
        assert list(registry.routes) == ["mcp_calc_add"]
        assert registry.came_up("calc", client) == ()

    def test_one_that_is_ready_before_its_first_attempt_is_noted_joins_all_the_same(
        self, registry: ServerRegistry, joined: list[tuple[str, tuple[MCPTool, ...]]]
    ) -> None:
        def connect() -> bool:
            # The second attempt is over before this thread goes on.
            registry.tools_listed("calc", client, (ADD,))
            assert registry.came_up("calc", client) == ()
            return False

        client = make_client(connect)
        client.keeps_trying = True
        registry.reserve("calc", client)
        assert registry.connect("calc", client, keep_trying=True)
        assert registry.connected == {"calc": client}
        assert joined == [("calc", (ADD,))]

    def test_they_are_stopped_before_their_successors_start(self, registry: ServerRegistry, client: Mock) -> None:
        def connect() -> bool:
            client.disconnect.assert_called_once_with()
            return True

        successor = make_client(connect)
        registry.reserve("calc", successor)
        client._engine.request_disconnect.assert_called_once_with()
        assert registry.connect("calc", successor)
        assert registry.came_up("calc", client) == ()
        assert registry.client_of("calc") is successor

    @pytest.mark.parametrize("state", [ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION])
    def test_the_name_is_free_once_the_failure_is_seen_even_if_its_thread_has_not_noted_it(
        self, registry: ServerRegistry, state: ServerState
    ) -> None:
        def connect() -> bool:
            assert "calc" in registry
            client.state = state
            assert "calc" not in registry
            registry.reserve("calc", successor)
            return False

        client, successor = make_client(connect), make_client()
        client.keeps_trying = True
        registry.reserve("calc", client)
        assert not registry.connect("calc", client, keep_trying=True)
        client._engine.request_disconnect.assert_called_once_with()
        client.disconnect.assert_called_once_with()
        assert registry.connect("calc", successor)
        assert registry.clients() == {"calc": successor}
        assert registry.failed_names() == set()

    def test_so_they_are_if_the_successor_is_taken_away_before_it_starts(
        self, registry: ServerRegistry, client: Mock
    ) -> None:
        successor = make_client()
        registry.reserve("calc", successor)
        registry.take_all()
        assert not registry.connect("calc", successor)
        client.disconnect.assert_called_once_with()

    def test_they_are_taken_away_with_the_others(self, registry: ServerRegistry, client: Mock) -> None:
        assert registry.take_all() == {"calc": client}
        assert registry.status() == []

    def test_they_can_be_dropped(self, registry: ServerRegistry, client: Mock) -> None:
        registry.drop("calc", client)
        assert registry.client_of("calc") is None
        assert registry.came_up("calc", client) == ()


class TestOrder:
    def test_it_is_that_of_the_configuration_then_that_of_the_additions(self, registry: ServerRegistry) -> None:
        registry.expect(["b", "a"])
        for name in ("added", "a", "b"):
            client = make_client()
            registry.reserve(name, client)
            registry.connect(name, client)
            registry.tools_listed(name, client, (ADD,))
        assert registry.in_order(registry.connected) == ["b", "a", "added"]
        assert list(registry.routes) == ["mcp_b_add", "mcp_a_add", "mcp_added_add"]
        registry.expect(["added", "b", "a"])
        assert list(registry.routes) == ["mcp_added_add", "mcp_b_add", "mcp_a_add"]

    def test_names_that_it_does_not_know_come_last(self, registry: ServerRegistry) -> None:
        registry.expect(["b"])
        assert registry.in_order(["x", "b"]) == ["b", "x"]


class TestTakenAway:
    @pytest.mark.parametrize(
        "take_away", [lambda registry, client: registry.drop("calc", client), lambda registry, _: registry.take_all()]
    )
    def test_while_it_starts_it_is_stopped_again(
        self, registry: ServerRegistry, take_away: Callable[[ServerRegistry, Mock], object]
    ) -> None:
        def connect() -> bool:
            take_away(registry, client)
            return True

        client = make_client(connect)
        registry.reserve("calc", client)
        assert not registry.connect("calc", client)
        client.disconnect.assert_called_once_with()
        assert "calc" not in registry

    def test_before_it_starts_it_is_not_even_connected(self, registry: ServerRegistry) -> None:
        client = make_client()
        registry.reserve("calc", client)
        registry.drop("calc", client)
        assert not registry.connect("calc", client)
        client.connect.assert_not_called()

    def test_its_tools_are_no_longer_news(self, registry: ServerRegistry) -> None:
        client, successor = make_client(), make_client()
        for one in (client, successor):
            registry.drop("calc", client)
            registry.reserve("calc", one)
            registry.connect("calc", one)
        registry.tools_listed("calc", client, (ADD,))
        assert registry.routes == {}

    def test_its_successor_stays_when_it_is_taken_away_again(self, registry: ServerRegistry) -> None:
        client, successor = make_client(), make_client()
        for one in (client, successor):
            registry.drop("calc", client)
            registry.reserve("calc", one)
        registry.drop("calc", client)
        assert registry.client_of("calc") is successor
        registry.connect("calc", successor)
        registry.tools_listed("calc", successor, (ADD,))
        registry.drop("calc", client)
        assert registry.client_of("calc") is successor
        assert list(registry.routes) == ["mcp_calc_add"]

    def test_its_tools_are_unknown(self, registry: ServerRegistry) -> None:
        client = make_client()
        registry.reserve("calc", client)
        registry.connect("calc", client)
        registry.tools_listed("calc", client, (ADD,))
        assert "did you mean mcp_calc_add?" in registry.unknown_tool("mcp_calc_ad").message
        registry.drop("calc", client)
        assert registry.client_of("calc") is None
        assert isinstance(registry.unknown_tool("mcp_calc_add"), UnknownTool)

    def test_those_of_one_that_has_just_joined_are_not(self, registry: ServerRegistry) -> None:
        client = make_client()
        registry.reserve("calc", client)
        registry.tools_listed("calc", client, (ADD,))
        registry.connect("calc", client)
        # The caller has looked before.
        error = registry.unknown_tool("mcp_calc_add")
        assert isinstance(error, ServerUnavailable)
        assert (error.delivery, "did you mean" in error.message) == ("not_sent", False)
