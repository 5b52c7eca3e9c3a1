"""Real servers ask, and are answered, in both eras."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.events import ElicitationCompleted
from gaia.mcp.transports.stdio import StdioTransport
from tests.recorder import Recorder
from tests.servers import asking_server
from tests.waiting import PATIENCE

CONFIG = {"command": sys.executable, "args": [str(asking_server.__file__)], "protocol": "handshake"}

Connect = Callable[..., MCPClient]


@pytest.fixture
def connect(starts_processes: None) -> Iterator[Connect]:
    clients: list[MCPClient] = []

    def connect(protocol: str = "handshake", **features: Any) -> MCPClient:
        transport = StdioTransport(CONFIG["command"], CONFIG["args"])  # type: ignore[arg-type]
        clients.append(MCPClient("asking", transport, protocol=protocol, **features))
        assert clients[-1].connect(), clients[-1].last_error
        return clients[-1]

    yield connect
    for client in clients:
        client.disconnect()


def text(result: dict[str, Any]) -> str:
    assert "error" not in result, result
    return "\n".join(block["text"] for block in result["content"])


def answer(request: Any) -> Any:
    return request.accept() if request.mode == "url" else request.accept({"name": "Ann"})


@pytest.mark.slow
def test_people_models_and_folders_answer_a_server_of_the_handshake_era(connect: Connect, tmp_path: Path) -> None:
    asked = []
    client = connect(
        on_elicitation=lambda request: (asked.append(request.url), answer(request))[1],  # type: ignore[func-returns-value]
        elicitation_modes=("form", "url"),
        on_sampling=lambda request: request.answer("Paris", model="small"),
        roots=[tmp_path],
    )
    told = Recorder()
    client.subscribe(told)
    assert text(client.call_tool("ask_form")) == "Ann is 30", "the age is the default of the form"
    assert text(client.call_tool("ask_url")) == "accept"
    assert asked == [None, "https://example.com/pay"]
    assert told.wait_for(ElicitationCompleted, elicitation_id="payment-1").server == "asking"
    assert text(client.call_tool("ask_model")) == "small: Paris"
    assert client.call_tool("ask_roots")["structuredContent"] == {"result": [tmp_path.as_uri()]}
    client.set_roots([])
    assert client.call_tool("ask_roots")["structuredContent"] == {"result": []}


@pytest.mark.slow
def test_a_server_is_refused_what_was_not_given_to_the_client(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    for tool in ("ask_form", "ask_url", "ask_model", "ask_roots"):
        assert "does not offer" in str(client.call_tool(tool))
    with pytest.raises(RuntimeError, match="without roots"):
        client.set_roots([tmp_path])


@pytest.mark.process
@pytest.mark.slow
def test_the_questions_of_all_servers_of_a_manager_say_who_asks(tmp_path: Path) -> None:
    asked = []

    def ask(request: Any) -> Any:
        asked.append(request.server)
        return request.accept({"name": request.server})

    with MCPClientManager(
        MCPConfig(str(tmp_path / "servers.json"), create=True), on_elicitation=ask, roots=[tmp_path]
    ) as manager:
        for name in ("one", "two"):
            manager.add_server(name, CONFIG)
            assert text(manager.call_tool(f"mcp_{name}_ask_form")) == f"{name} is 30"
        manager.set_roots(["file:///new"])
        assert manager.call_tool("mcp_two_ask_roots")["structuredContent"] == {"result": ["file:///new"]}
    assert asked == ["one", "two"]


@pytest.mark.slow
def test_a_server_of_the_stateless_era_gets_what_it_requires(connect: Connect) -> None:
    client = connect(
        protocol="stateless",
        on_elicitation=answer,
        on_sampling=lambda request: request.answer("Hello", model="small"),
        roots=["file:///work"],
    )
    assert text(client.call_tool("greet")) == "Hello Ann, file:///work, asked"
    assert text(client.submit_tool("greet").result(PATIENCE)) == "Hello Ann, file:///work, asked"
    assert client.get_prompt("introduction")["messages"][0]["content"]["text"] == "I am Ann"
    assert text(client.call_tool("count", {"rounds": 9})) == "9"
    assert client.call_tool("count", {"rounds": 10})["error_type"] == "invalid_response"


@pytest.mark.parametrize("roots", ["/tmp", [5], ["https://example.com"]])
def test_what_is_no_list_of_folders_is_an_error(roots: Any) -> None:
    with pytest.raises(ValueError, match="roots: "):
        MCPClient("x", StdioTransport("true"), roots=roots)


def test_a_manager_without_roots_cannot_change_them(tmp_path: Path) -> None:
    with (
        MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager,
        pytest.raises(RuntimeError, match="without roots"),
    ):
        manager.set_roots([tmp_path])
