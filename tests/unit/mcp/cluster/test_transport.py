import pytest

from gaia.mcp.client.server_transport import transport_for
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import Launch
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig


def transport(**placement: object) -> PlacedTransport:
    return PlacedTransport(Placement(**placement), 30, lambda: Launch(command="it"))  # type: ignore[arg-type]


class TestFourMethods:
    def test_it_is_no_way_to_a_server_by_itself(self) -> None:
        placed = transport()
        with pytest.raises(RuntimeError, match="MCPClient"):
            placed.connect()
        with pytest.raises(RuntimeError, match="MCPClient"):
            placed.send_request("ping")
        assert not placed.is_connected()
        placed.disconnect()


class TestLaunch:
    def test_variables_are_filled_in_at_each_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = {"command": "it", "args": ["--x"], "env": {"TOKEN": "${THE_TOKEN}"}, "cwd": "/data", "placement": {}}
        placed = transport_for(ServerConfig.from_dict("it", entry), 30, debug=False)
        assert isinstance(placed, PlacedTransport)
        monkeypatch.setenv("THE_TOKEN", "first-secret")
        assert placed.launch().env == {"TOKEN": "first-secret"}
        monkeypatch.setenv("THE_TOKEN", "second-secret")
        launch = placed.launch()
        assert launch.env == {"TOKEN": "second-secret"}
        assert launch.secrets == ["second-secret"]
        assert (launch.command, launch.args, launch.cwd) == ("it", ["--x"], "/data")

    def test_a_command_with_shell_operators_is_refused(self) -> None:
        server = ServerConfig.from_dict("it", {"command": "a | b", "placement": {}})
        with pytest.raises(ValueError, match="shell"):
            transport_for(server, 30, debug=False)
