"""Real servers ask, and are answered: the handshake era."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.supervision.events import ElicitationCompleted
from gaia.mcp.client.transports.stdio import StdioTransport
from tests.recorder import Recorder
from tests.servers import asking_server

CONFIG = {"command": sys.executable, "args": [str(asking_server.__file__)], "protocol": "legacy"}

Connect = Callable[..., MCPClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[MCPClient] = []

    def connect(**features: Any) -> MCPClient:
        transport = StdioTransport(CONFIG["command"], CONFIG["args"])  # type: ignore[arg-type]
        clients.append(MCPClient("asking", transport, protocol="legacy", **features))
        assert clients[-1].connect(), clients[-1].last_error
        return clients[-1]

    yield connect
    for client in clients:
        client.disconnect()


def text(result: dict[str, Any]) -> str:
    assert "content" in result, result
    return "\n".join(block["text"] for block in result["content"])


def test_a_form_is_filled_in_and_completed_with_its_defaults(connect: Connect) -> None:
    client = connect(on_elicitation=lambda request: request.accept({"name": "Ann"}))
    assert text(client.call_tool("ask_form")) == "Ann is 30"


def test_a_person_may_decline(connect: Connect) -> None:
    client = connect(on_elicitation=lambda request: request.decline())
    assert text(client.call_tool("ask_form")) == "decline"


def test_a_url_is_shown_and_its_end_announced(connect: Connect) -> None:
    asked = []
    client = connect(
        on_elicitation=lambda request: asked.append(request) or request.accept(),  # type: ignore[func-returns-value]
        elicitation_modes=("form", "url"),
    )
    told = Recorder()
    client.subscribe(told)
    assert text(client.call_tool("ask_url")) == "accept"
    assert [request.url for request in asked] == ["https://example.com/pay"]
    assert told.wait_for(ElicitationCompleted, elicitation_id="payment-1").server == "asking"


def test_a_model_answers(connect: Connect) -> None:
    client = connect(on_sampling=lambda request: request.answer("Paris", model="small"))
    assert text(client.call_tool("ask_model")) == "small: Paris"


def test_folders_are_told_and_may_change(connect: Connect, tmp_path: Path) -> None:
    client = connect(roots=[tmp_path])
    assert client.call_tool("ask_roots")["structuredContent"] == {"result": [tmp_path.as_uri()]}
    client.set_roots([])
    assert client.call_tool("ask_roots")["structuredContent"] == {"result": []}


@pytest.mark.parametrize("tool", ["ask_form", "ask_url", "ask_model", "ask_roots"])
def test_what_was_not_given_is_refused(connect: Connect, tool: str) -> None:
    result = connect().call_tool(tool)
    assert "does not offer" in str(result)


def test_the_questions_of_all_servers_of_a_manager_say_who_asks(tmp_path: Path) -> None:
    asked = []

    def ask(request: Any) -> Any:
        asked.append(request.server)
        return request.accept({"name": request.server})

    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json")), on_elicitation=ask, roots=[tmp_path]) as manager:
        for name in ("one", "two"):
            manager.add_server(name, CONFIG)
            assert text(manager.call_tool(f"mcp_{name}_ask_form")) == f"{name} is 30"
        manager.set_roots(["file:///new"])
        assert manager.call_tool("mcp_two_ask_roots")["structuredContent"] == {"result": ["file:///new"]}
    assert asked == ["one", "two"]


class TestRootsThatWereNotGiven:
    def test_they_cannot_be_set_later(self, connect: Connect, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="without roots"):
            connect().set_roots([tmp_path])
        with (
            MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager,
            pytest.raises(RuntimeError, match="without roots"),
        ):
            manager.set_roots([tmp_path])

    @pytest.mark.parametrize("roots", ["/tmp", [5], ["https://example.com"]])
    def test_what_is_no_list_of_folders_is_an_error(self, roots: Any) -> None:
        with pytest.raises(ValueError, match="roots: "):
            MCPClient("x", StdioTransport("true"), roots=roots)
