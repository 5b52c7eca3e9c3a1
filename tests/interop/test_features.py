"""Everything that clients do besides calling tools, against the server that others test their clients with."""

import os
import signal
from collections.abc import Callable
from typing import Any

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.events import ResourceUpdated, Restarted
from tests.recorder import Recorder
from tests.waiting import wait_until

Json = dict[str, Any]

ADDED_LATE = "trigger-elicitation-request"
"""The server offers it only once it knows what the client can be asked."""


def text(result: Json) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


def test_every_feature_works_with_server_everything(
    configure_real_server: Callable[[str], Json], tmp_path: Any
) -> None:
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        return request.accept({"name": "Ann"})

    with MCPClientManager(
        MCPConfig(str(tmp_path / "servers.json"), create=True),
        output_validation="error",
        on_elicitation=answer,
        on_sampling=lambda request: request.answer("Paris", model="small"),
        roots=[tmp_path],
    ) as manager:
        told = Recorder()
        manager.subscribe(told)
        config = {**configure_real_server("everything"), "restart": {"initialDelay": 0.05}}
        client = manager.add_server("everything", config)
        _wait_for_tool(client, told)

        assert "Name: Ann" in text(client.call_tool(ADDED_LATE))
        assert asked[0].server == "everything"
        assert "Paris" in text(client.call_tool("trigger-sampling-request", {"prompt": "The capital of France?"}))
        assert tmp_path.as_uri() in text(client.call_tool("get-roots-list"))

        _content_comes_as_it_is(client)
        _prompts_and_completions(client)

        uri = client.list_resources()[0]["uri"]
        assert client.read_resource(uri)["contents"][0]["uri"] == uri
        assert "{resourceId}" in client.list_resource_templates()[0]["uriTemplate"]
        client.set_logging_level("debug")
        client.subscribe_resource(uri)
        client.call_tool("toggle-subscriber-updates")
        assert told.wait_for(ResourceUpdated).uri == uri

        pid = client.status.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        told.wait_for(Restarted)
        again = Recorder()
        manager.subscribe(again)
        # Only a server that was told of the subscription again sends updates of it.
        client.call_tool("toggle-subscriber-updates")
        assert again.wait_for(ResourceUpdated).uri == uri


def _wait_for_tool(client: MCPClient, told: Recorder) -> None:
    assert wait_until(lambda: ADDED_LATE in [tool.name for tool in client.list_tools()]), told.events


def _content_comes_as_it_is(client: MCPClient) -> None:
    image = next(block for block in client.call_tool("get-tiny-image")["content"] if block["type"] == "image")
    assert image["mimeType"] == "image/png"
    links = [block for block in client.call_tool("get-resource-links")["content"] if block["type"] == "resource_link"]
    assert links
    assert all(link["uri"] and link["name"] for link in links)
    reference = client.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 1})["content"]
    assert [block["resource"]["uri"] for block in reference if block["type"] == "resource"]
    annotated = client.call_tool("get-annotated-message", {"messageType": "error", "includeImage": False})["content"]
    assert annotated[0]["annotations"]["priority"] == 1
    weather = client.call_tool("get-structured-content", {"location": "Chicago"})["structuredContent"]
    assert set(weather) == {"temperature", "conditions", "humidity"}


def _prompts_and_completions(client: MCPClient) -> None:
    assert "args-prompt" in [prompt["name"] for prompt in client.list_prompts()]
    assert "Paris" in client.get_prompt("args-prompt", {"city": "Paris"})["messages"][0]["content"]["text"]
    ref = {"type": "ref/prompt", "name": "completable-prompt"}
    departments = client.complete(ref, {"name": "department", "value": ""})["completion"]["values"]
    assert len(departments) > 1
    names = [
        client.complete(ref, {"name": "name", "value": ""}, context={"department": department})["completion"]["values"]
        for department in departments[:2]
    ]
    assert names[0] != names[1], "the context decides what fits"


def test_a_call_that_reports_progress_may_take_longer_than_its_timeout(
    configure_real_server: Callable[[str], Json],
) -> None:
    config = {**configure_real_server("everything"), "timeout": 2, "resetTimeoutOnProgress": True}
    with MCPClient.from_config("everything", config) as client:
        result = client.call_tool("trigger-long-running-operation", {"duration": 4, "steps": 8})
        assert "completed" in text(result)
