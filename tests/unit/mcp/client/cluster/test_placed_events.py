from collections.abc import Callable
from typing import Any

from gaia.mcp.client.supervision.events import Event, ToolsChanged
from tests.unit.mcp.client.cluster.conftest import Place
from tests.waiting import PATIENCE, wait_until


def test_tools_that_change(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    tool = {"name": "late", "inputSchema": {"type": "object"}}
    client = place(fault_server(faults=[{"tool": "echo", "change_tools": [tool]}]))
    events: list[Event] = []
    assert client.connect()
    client.subscribe(events.append)
    client.call_tool("echo", {"text": "x"})
    assert wait_until(lambda: any(isinstance(one, ToolsChanged) and "late" in one.added for one in events))


def test_a_question_is_asked_here(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
    server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
    client = place(server, on_elicitation=lambda _: {"action": "decline"})
    assert client.connect()
    assert "decline" in str(client.call_tool("client_answers", timeout=PATIENCE))


def test_a_question_that_was_not_offered_is_refused(place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
    question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
    server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
    client = place(server)
    assert client.connect()
    assert "-32601" in str(client.call_tool("client_answers", timeout=PATIENCE))
