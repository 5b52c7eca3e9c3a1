"""Servers that live in this program, as entries of a configuration."""

import copy

import pytest

from gaia.mcp import ConfigError, MCPConfig
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.transports.base import ChannelTransport, InProcessServer
from tests.fake_transport import FakeTransport


class Server(InProcessServer):
    def transport(self, timeout: float) -> ChannelTransport:
        return FakeTransport(timeout)


def test_it_is_its_own_entry() -> None:
    server = Server()
    assert dict(server) == {"inProcess": server}
    assert {**server, "timeout": 5} == {"inProcess": server, "timeout": 5}
    assert (len(server), list(server), "command" in server) == (1, ["inProcess"], False)
    with pytest.raises(KeyError):
        server["command"]


def test_it_equals_itself_alone() -> None:
    server, other = Server(), Server()
    assert server == server["inProcess"]
    assert server == {"inProcess": server}
    assert {"inProcess": server} == server
    assert server != other
    assert {"inProcess": server} != {"inProcess": other}
    assert server != {"inProcess": server, "timeout": 5}
    assert len({server, other}) == 2


def test_a_copy_of_its_entry_has_the_server_itself() -> None:
    server = Server()
    assert copy.deepcopy({"time": {**server}})["time"]["inProcess"] is server


def test_a_configuration_in_memory_keeps_it() -> None:
    server = Server()
    config = MCPConfig.in_memory({"time": server, "other": {**server, "timeout": 5, "args": ("a",)}})
    assert config.get_servers() == {
        "time": {"inProcess": server},
        "other": {"inProcess": server, "timeout": 5, "args": ["a"]},
    }
    assert config.problems == {}
    assert config.warnings == []


def test_its_further_keys_must_be_json() -> None:
    with pytest.raises(ConfigError, match="server 'time': the config dict cannot be saved as JSON"):
        MCPConfig.in_memory({"time": {**Server(), "env": object()}})


def test_the_checked_entry_says_how_it_is_reached() -> None:
    assert ServerConfig.from_dict("time", Server()).transport == "in-process"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("command", "uvx", "inProcess: the server lives in this program; remove command, url and type"),
        ("url", "https://example.com", "inProcess: the server lives in this program; remove command, url and type"),
        ("type", "http", "inProcess: the server lives in this program; remove command, url and type"),
        (
            "sandbox",
            True,
            "sandbox: only a server with a command can be started in one; this one lives in this program",
        ),
        ("maxMemory", "1G", "maxMemory: only for a server with a command; this one lives in this program"),
    ],
)
def test_what_belongs_to_other_servers_is_refused(key: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_dict("time", {**Server(), key: value})
    assert str(caught.value).endswith(f"server 'time': {problem}")


def test_a_file_cannot_say_that_there_is_one() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_dict("time", {"inProcess": {"name": "time"}})
    assert "inProcess: expected a server object, which no file can hold, got an object" in str(caught.value)
