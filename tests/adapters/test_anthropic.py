"""A loop with Anthropic's own client uses a real server that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters.anthropic import anthropic_tools, run_tool_call, run_tool_call_async
from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.servers.ledger_server import PIXEL
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm

pytest.importorskip("anthropic", reason="the client of Anthropic is not installed: pip install anthropic")

from anthropic import Anthropic, AsyncAnthropic

Json = dict[str, Any]
Run = Callable[..., ScriptedLLM]


def turn(*calls: tuple[str, Json], after: Callable[[], object] = lambda: None) -> Callable[[Json], Reply]:
    """The model makes the calls, when `after` has returned."""

    def reply(_request: Json) -> Reply:
        after()
        return Reply(calls=calls)

    return reply


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


def told(endpoint: ScriptedLLM) -> list[Json]:
    """The results in the last request."""
    contents = [message["content"] for message in endpoint.requests[-1]["messages"][1:] if message["role"] == "user"]
    return [block for content in contents for block in content]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, manager: MCPClientManager) -> Run:
    """Runs the loop to its end with a script of turns; returns the endpoint, which was asked."""

    async def awaited(url: str) -> None:
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            await loop_async(manager, client)

    def run(*turns: Reply | Callable[[Json], Reply]) -> ScriptedLLM:
        with scripted_llm(*turns, Reply("done")) as endpoint:
            url = endpoint.base_url.removesuffix("/v1")
            if request.param == "async":
                asyncio.run(awaited(url))
            else:
                with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
                    loop(manager, client)
        return endpoint

    return run


def test_the_loop_calls_the_tools(run: Run) -> None:
    endpoint = run(turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert [block["content"] for block in told(endpoint)] == [
        [{"type": "text", "text": '{"sum": 21}'}],
        [{"type": "text", "text": "hello"}],
    ]
    assert [block["tool_use_id"] for block in told(endpoint)] == ["call_100", "call_101"]


def test_a_server_killed_between_calls_is_back_for_the_next_one(run: Run, killer: Killer, ledger: Ledger) -> None:
    first, second = [("mcp_ledger_record", {"text": text}) for text in ("first", "second")]

    endpoint = run(turn(first), turn(second, after=killer.kill))

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


def test_a_new_tool_is_there_in_the_next_turn(run: Run, until_grown: Callable[[], None]) -> None:
    # The second answer comes when the tool is listed, so the third request has it.
    listed = turn(("mcp_ledger_echo", {"text": "listed"}), after=until_grown)
    endpoint = run(turn(("mcp_ledger_grow", {})), listed, turn(("mcp_ledger_grown_1", {})))

    names = [[tool["name"] for tool in request["tools"]] for request in endpoint.requests]
    assert "mcp_ledger_grown_1" not in names[0]
    assert "mcp_ledger_grown_1" in names[2]
    assert "is_error" not in told(endpoint)[-1]


def test_the_model_is_told_of_errors(run: Run) -> None:
    calls: list[tuple[str, Json]] = [
        ("mcp_ledger_fail", {"message": "no such note"}),
        ("mcp_ledger_add", {"a": 1}),
        ("mcp_ledger_nothing", {}),
    ]

    blocks = told(run(turn(*calls)))

    assert [block["is_error"] for block in blocks] == [True, True, True]
    failed, missing, unknown = (block["content"] for block in blocks)
    assert failed == "Error: no such note"
    assert "missing argument 'b'" in missing
    assert "had no effect" in unknown
    assert "Do not repeat" not in failed + missing + unknown


def test_images_are_shown(run: Run) -> None:
    (block,) = told(run(turn(("mcp_ledger_picture", {}))))

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    assert block["content"][0] == {"type": "text", "text": "one pixel"}
    assert [part for part in block["content"] if part["type"] == "image"] == [image, image]


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(ValueError, match="server_tool_use"):
        run_tool_call(MCPClientManager({}), {"type": "server_tool_use", "id": "1", "name": "web_search"})


@pytest.mark.parametrize("thing", [{"id": "1"}, None], ids=["no type", "nothing"])
def test_what_has_no_type_is_refused(thing: object) -> None:
    with pytest.raises(ValueError, match="not None"):
        run_tool_call(MCPClientManager({}), thing)
