"""Who is one of a manager's servers, whatever comes between a start and its end. The clients are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from gaia.mcp.client.roster import Roster
from gaia.mcp.client.routing import no_route
from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.errors import UnknownTool

ADD = MCPTool("add", "Adds numbers.", {"type": "object"})


def make_client(connect: Callable[[], bool] = lambda: True) -> Mock:
    client = Mock(denied_tools=frozenset(), blocked_tools={})
    client.connect.side_effect = connect
    client.status = ServerStatus(name="calc", state=ServerState.READY)
    return client


@pytest.fixture
def joined() -> list[tuple[str, tuple[MCPTool, ...]]]:
    return []


@pytest.fixture
def roster(joined: list[tuple[str, tuple[MCPTool, ...]]]) -> Roster:
    return Roster(lambda name, tools: joined.append((name, tools)))


class TestJoining:
    def test_a_name_is_taken_from_the_reservation_on(self, roster: Roster) -> None:
        roster.reserve("calc", make_client())
        assert "calc" in roster
        assert roster.is_starting("calc")
        assert roster.connected == {}
        with pytest.raises(ValueError, match="already exists"):
            roster.reserve("calc", make_client())

    def test_tools_can_be_called_once_the_server_has_joined(
        self, roster: Roster, joined: list[tuple[str, tuple[MCPTool, ...]]]
    ) -> None:
        def connect() -> bool:
            roster.tools_listed("calc", client, (ADD,))
            assert roster.routes == {}
            return True

        client = make_client(connect)
        roster.reserve("calc", client)
        assert roster.connect("calc", client)
        assert joined == [("calc", (ADD,))]
        assert roster.routes["mcp_calc_add"].client is client
        assert roster.routes["mcp_calc_add"].tool.namespaced_name == "mcp_calc_add"

    def test_a_failure_is_kept_until_it_is_forgotten(self, roster: Roster) -> None:
        client = make_client(lambda: False)
        roster.reserve("calc", client)
        assert not roster.connect("calc", client)
        assert "calc" not in roster
        assert roster.status() == [client.status]
        roster.forget_failure("calc")
        assert roster.status() == []

    def test_an_unusable_configuration_does_not_hide_a_server_that_works(self, roster: Roster) -> None:
        client = make_client()
        roster.reserve("calc", client)
        roster.refused("calc", "no command")
        roster.refused("other", "no command")
        assert {status.name: status.last_error for status in roster.status()} == {"calc": None, "other": "no command"}


class TestTakenAway:
    @pytest.mark.parametrize("take_away", [lambda roster: roster.drop("calc"), Roster.take_all])
    def test_while_it_starts_it_is_stopped_again(self, roster: Roster, take_away: Callable[[Roster], object]) -> None:
        def connect() -> bool:
            take_away(roster)
            return True

        client = make_client(connect)
        roster.reserve("calc", client)
        assert not roster.connect("calc", client)
        client.disconnect.assert_called_once_with()
        assert "calc" not in roster

    def test_before_it_starts_it_is_not_even_connected(self, roster: Roster) -> None:
        client = make_client()
        roster.reserve("calc", client)
        roster.drop("calc")
        assert not roster.connect("calc", client)
        client.connect.assert_not_called()

    def test_its_tools_are_no_longer_news(self, roster: Roster) -> None:
        client, successor = make_client(), make_client()
        for one in (client, successor):
            roster.drop("calc")
            roster.reserve("calc", one)
            roster.connect("calc", one)
        roster.tools_listed("calc", client, (ADD,))
        assert roster.routes == {}

    def test_its_tools_are_unknown(self, roster: Roster) -> None:
        client = make_client()
        roster.reserve("calc", client)
        roster.connect("calc", client)
        roster.tools_listed("calc", client, (ADD,))
        assert "did you mean mcp_calc_add?" in no_route("mcp_calc_ad", roster.connected, roster.routes).message
        assert roster.drop("calc") is client
        assert isinstance(no_route("mcp_calc_add", roster.connected, roster.routes), UnknownTool)
