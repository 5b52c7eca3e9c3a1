"""A scripted server asks everything at once, and crashes while it waits: over real pipes."""

import json
import threading
from collections.abc import Callable
from typing import Any

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.events import Restarted
from gaia.runtime.cancellation import current_scope
from tests.recorder import Recorder
from tests.waiting import PATIENCE

Json = dict[str, Any]
FaultServer = Callable[..., Json]

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
HELLO = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 5}


def manager(tmp_path: Any, **features: Any) -> MCPClientManager:
    return MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True), **features)


def test_each_question_gets_its_own_answer_good_or_bad(fault_server: FaultServer, tmp_path: Any) -> None:
    requests = [
        {"method": "elicitation/create", "params": FORM},
        {"method": "sampling/createMessage", "params": HELLO},
        {"method": "roots/list"},
        {"method": "elicitation/create", "params": {"mode": "url", "message": "Pay", "url": "https://example.com"}},
        {"method": "elicitation/create", "params": {"message": "Who?"}},
        {"method": "sampling/createMessage", "params": {**HELLO, "tools": []}},
        {"method": "tasks/get", "params": {}},
        {"method": "ping"},
    ]
    with manager(
        tmp_path,
        on_elicitation=lambda request: request.accept({"name": "Ann"}),
        on_sampling=lambda request: request.answer("Hi", model="small"),
        roots=["file:///work"],
    ) as servers:
        client = servers.add_server("asking", fault_server(faults=[{"tool": "echo", "server_requests": requests}]))
        client.call_tool("echo", {"text": "go"})
        answers = json.loads(client.call_tool("client_answers")["content"][0]["text"])
    results = [answer.get("result") for answer in answers]
    assert results[0] == {"action": "accept", "content": {"name": "Ann"}}
    assert results[1]["content"] == {"type": "text", "text": "Hi"}
    assert results[2] == {"roots": [{"uri": "file:///work"}]}
    assert [answer["error"]["code"] for answer in answers[3:7]] == [-32602, -32602, -32602, -32601]
    assert results[7] == {}


def test_a_question_of_a_server_that_crashes_is_taken_back(fault_server: FaultServer, tmp_path: Any) -> None:
    asked, withdrawn = threading.Event(), threading.Event()

    def think(request: Any) -> Any:
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(withdrawn.set)
        asked.set()
        assert withdrawn.wait(PATIENCE)
        return request.accept({"name": "too late"})

    faults = [
        {"tool": "echo", "nth": [1], "server_requests": [{"method": "elicitation/create", "params": FORM}]},
        {"tool": "echo", "nth": [2], "crash": "before_answer"},
    ]
    config = {**fault_server(faults=faults, state_file=tmp_path / "state"), "restart": {"initialDelay": 0.05}}
    with manager(tmp_path, on_elicitation=think) as servers:
        told = Recorder()
        servers.subscribe(told)
        client = servers.add_server("asking", config)
        client.call_tool("echo", {"text": "ask"})
        assert asked.wait(PATIENCE)
        assert client.call_tool("echo", {"text": "crash"})["error_type"] == "server_crashed"
        assert withdrawn.wait(PATIENCE)
        told.wait_for(Restarted)
        received = json.loads(client.call_tool("received")["content"][0]["text"])
    assert not [message for message in received if "method" not in message], "the new process has asked nothing"
