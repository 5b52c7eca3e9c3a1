"""A loop with Anthropic's own client uses a real server that is killed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters.anthropic import anthropic_tools, run_tool_call, run_tool_call_async
from gaia.adapters.selection import Manager, ToolSelection
from gaia.mcp import MCPClientManager
from tests.adapters.contract import AdapterContract, Begin, Json, Play, Told
from tests.adapters.scripted_turns import Turn, turn, turns_of
from tests.servers.ledger_server import DOCUMENT, PIXEL
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm

pytest.importorskip("anthropic", reason="the client of Anthropic is not installed: pip install anthropic")

from anthropic import Anthropic, AsyncAnthropic

Run = Callable[..., ScriptedLLM]


def loop(manager: Manager, client: Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "go on"}]
    while True:
        tools: Any = anthropic_tools(manager)
        message = client.messages.create(model="m", max_tokens=100, messages=messages, tools=tools)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": [run_tool_call(manager, call) for call in calls]})


async def loop_async(manager: Manager, client: AsyncAnthropic) -> None:
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
def run_with(request: pytest.FixtureRequest) -> Run:
    """Runs the loop to its end with a manager and a script of turns; returns the endpoint, which was asked."""

    async def awaited(manager: Manager, url: str) -> None:
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            await loop_async(manager, client)

    def run(manager: Manager, *turns: Turn, **selection: Any) -> ScriptedLLM:
        manager = ToolSelection.of(manager, **selection)
        with scripted_llm(*turns, Reply("done")) as endpoint:
            url = endpoint.base_url.removesuffix("/v1")
            if request.param == "async":
                asyncio.run(awaited(manager, url))
            else:
                with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
                    loop(manager, client)
        return endpoint

    return run


@pytest.fixture
def run(run_with: Run, manager: MCPClientManager) -> Run:
    return functools.partial(run_with, manager)


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, run_with: Run) -> Play:
        return lambda manager, *steps, **selection: [
            Told(str(block["content"]), block.get("is_error", False))
            for block in told(run_with(manager, *turns_of(*steps), **selection))
        ]

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, step: run_tool_call_async(
            manager, {"type": "tool_use", "id": "1", "name": step[0], "input": step[1]}
        )


def test_the_calls_of_one_turn_are_answered_in_order(run: Run) -> None:
    endpoint = run(turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert [block["content"] for block in told(endpoint)] == [
        [{"type": "text", "text": '{"sum": 21}'}],
        [{"type": "text", "text": "hello"}],
    ]
    assert [block["tool_use_id"] for block in told(endpoint)] == ["call_100", "call_101"]


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
    assert block["content"][-1]["source"] == {"type": "base64", "media_type": "application/pdf", "data": DOCUMENT}


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ({"type": "server_tool_use", "id": "1", "name": "web_search"}, "server_tool_use"),
        ({"id": "1"}, "not None"),
        (None, "not None"),
    ],
    ids=["of a server of theirs", "no type", "nothing"],
)
def test_what_is_no_call_is_refused(thing: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_tool_call(MCPClientManager({}), thing)
