"""A loop with Anthropic's own client uses a real server that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters.anthropic import anthropic_tools, run_tool_call, run_tool_call_async
from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.scripted_endpoint import Endpoint, Step, scripted_endpoint
from tests.servers.ledger_server import PIXEL
from tests.waiting import wait_until

pytest.importorskip("anthropic", reason="the client of Anthropic is not installed: pip install anthropic")

from anthropic import Anthropic, AsyncAnthropic

Json = dict[str, Any]
Run = Callable[..., Endpoint]


def turn(*calls: tuple[str, Json]) -> Json:
    """What the model answers: the calls, or "done" without any."""
    listed = [
        {"type": "tool_use", "id": f"id_{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(calls)
    ]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    reason = "tool_use" if calls else "end_turn"
    return {**head, "content": listed or [{"type": "text", "text": "done"}], "stop_reason": reason, "usage": usage}


def loop(manager: MCPClientManager, client: Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "go on"}]
    while True:
        tools: Any = anthropic_tools(manager)
        message = client.messages.create(model="m", max_tokens=100, messages=messages, tools=tools)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": [run_tool_call(manager, call) for call in calls]})


async def loop_async(manager: MCPClientManager, client: AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "go on"}]
    while True:
        tools: Any = anthropic_tools(manager)
        message = await client.messages.create(model="m", max_tokens=100, messages=messages, tools=tools)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return
        results = await asyncio.gather(*(run_tool_call_async(manager, call) for call in calls))
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": results})


def told(endpoint: Endpoint) -> list[Json]:
    """The results in the last request."""
    contents = [message["content"] for message in endpoint.requests[-1]["messages"][1:] if message["role"] == "user"]
    return [block for content in contents for block in content]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, manager: MCPClientManager) -> Run:
    """Runs the loop to its end with a script of turns; returns the endpoint, which was asked."""

    async def awaited(url: str) -> None:
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            await loop_async(manager, client)

    def run(*steps: Step) -> Endpoint:
        with scripted_endpoint(*steps, turn()) as endpoint:
            if request.param == "async":
                asyncio.run(awaited(endpoint.url))
            else:
                with Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as client:
                    loop(manager, client)
        return endpoint

    return run


def test_the_loop_calls_the_tools(run: Run) -> None:
    endpoint = run(turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert [block["content"] for block in told(endpoint)] == [
        [{"type": "text", "text": '{"sum": 21}'}],
        [{"type": "text", "text": "hello"}],
    ]
    assert [block["tool_use_id"] for block in told(endpoint)] == ["id_0", "id_1"]


def test_a_server_killed_between_calls_is_back_for_the_next_one(run: Run, killer: Killer, ledger: Ledger) -> None:
    first, second = (turn(("mcp_ledger_record", {"text": text})) for text in ("first", "second"))

    endpoint = run(first, killer.kill, second)

    assert [block.get("is_error") for block in told(endpoint)] == [None, None]
    assert ledger.lines == ["first", "second"]


def test_a_call_in_which_the_server_is_killed_is_not_repeated_and_the_model_is_told(
    run: Run, killer: Killer, ledger: Ledger
) -> None:
    with killer.during("held"):
        endpoint = run(turn(("mcp_ledger_hold", {"text": "held"})), turn(("mcp_ledger_record", {"text": "next"})))

    held, after = told(endpoint)
    assert held["is_error"] is True
    assert "Do not repeat it" in held["content"]
    assert "is_error" not in after
    assert ledger.lines == ["held", "next"]


def test_a_call_of_a_safe_tool_is_repeated_by_the_manager(run: Run, killer: Killer, ledger: Ledger) -> None:
    with killer.during("page"):
        endpoint = run(turn(("mcp_ledger_read", {"text": "page"})))

    (block,) = told(endpoint)
    assert block["content"] == [{"type": "text", "text": "read page"}]
    assert ledger.lines == ["page", "page"]


def test_a_new_tool_is_there_in_the_next_turn(run: Run, manager: MCPClientManager) -> None:
    def until_listed() -> None:
        assert wait_until(lambda: "mcp_ledger_grown_1" in [tool.namespaced_name for tool in manager.list_tools()])

    # The second answer comes when the tool is listed, so the third request has it.
    listed = turn(("mcp_ledger_echo", {"text": "listed"}))
    endpoint = run(turn(("mcp_ledger_grow", {})), until_listed, listed, turn(("mcp_ledger_grown_1", {})))

    names = [[tool["name"] for tool in request["tools"]] for request in endpoint.requests]
    assert "mcp_ledger_grown_1" not in names[0]
    assert "mcp_ledger_grown_1" in names[2]
    assert "is_error" not in told(endpoint)[-1]


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (("mcp_ledger_fail", {"message": "no such note"}), "Error: no such note"),
        (("mcp_ledger_add", {"a": 1}), "missing argument 'b'"),
        (("mcp_ledger_nothing", {}), "had no effect"),
    ],
)
def test_the_model_is_told_of_errors(run: Run, call: tuple[str, Json], shown: str) -> None:
    (block,) = told(run(turn(call)))

    assert block["is_error"] is True
    assert shown in block["content"]
    assert "Do not repeat" not in block["content"]


def test_images_are_shown(run: Run) -> None:
    (block,) = told(run(turn(("mcp_ledger_picture", {}))))

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    assert block["content"][0] == {"type": "text", "text": "one pixel"}
    assert [part for part in block["content"] if part["type"] == "image"] == [image, image]


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(ValueError, match="server_tool_use"):
        run_tool_call(MCPClientManager({}), {"type": "server_tool_use", "id": "1", "name": "web_search"})
