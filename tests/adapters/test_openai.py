"""A loop with OpenAI's own client, over both of its APIs, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gaia.adapters.openai import openai_tools, run_tool_call, run_tool_call_async
from gaia.mcp import MCPClientManager
from gaia.mcp.aio import AsyncMCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.scripted_endpoint import Endpoint, Step, scripted_endpoint
from tests.servers.ledger_server import PIXEL
from tests.waiting import wait_until

pytest.importorskip("openai", reason="the client of OpenAI is not installed: pip install openai")

from openai import AsyncOpenAI, OpenAI

Json = dict[str, Any]
Called = tuple[str, Json | str]


class Chat(NamedTuple):
    """Chat completions."""

    @staticmethod
    def turn(*calls: Called) -> Json:
        """What the model answers: the calls, or "done" without any."""
        listed = [
            {"id": f"id_{number}", "type": "function", "function": {"name": name, "arguments": written(arguments)}}
            for number, (name, arguments) in enumerate(calls)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": listed} if calls else {"content": "done"}
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    @staticmethod
    def run(manager: MCPClientManager, client: OpenAI) -> None:
        messages: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            completion = client.chat.completions.create(model="m", messages=messages, tools=openai_tools(manager))
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return
            messages += [run_tool_call(manager, call) for call in message.tool_calls]

    @staticmethod
    async def run_async(manager: MCPClientManager, client: AsyncOpenAI) -> None:
        messages: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            completion = await client.chat.completions.create(model="m", messages=messages, tools=openai_tools(manager))
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return
            messages += await asyncio.gather(*(run_tool_call_async(manager, call) for call in message.tool_calls))

    @staticmethod
    def told(request: Json) -> list[Any]:
        """What a request tells the model of its calls."""
        return [message["content"] for message in request["messages"] if message["role"] == "tool"]

    @staticmethod
    def named(request: Json) -> list[str]:
        return [tool["function"]["name"] for tool in request["tools"]]


class Responses(NamedTuple):
    """Responses."""

    @staticmethod
    def turn(*calls: Called) -> Json:
        text = {"type": "output_text", "text": "done", "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        output = [
            {
                "id": f"fc_{n}",
                "type": "function_call",
                "call_id": f"id_{n}",
                "name": name,
                "arguments": written(arguments),
            }
            for n, (name, arguments) in enumerate(calls)
        ]
        settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        head = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
        return {**head, **settings, "output": output or [message]}

    @staticmethod
    def run(manager: MCPClientManager, client: OpenAI) -> None:
        items: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            tools: Any = openai_tools(manager, "responses")
            response = client.responses.create(model="m", input=items, tools=tools)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return
            items += [*response.output, *(run_tool_call(manager, call) for call in calls)]

    @staticmethod
    async def run_async(manager: MCPClientManager, client: AsyncOpenAI) -> None:
        items: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            tools: Any = openai_tools(manager, "responses")
            response = await client.responses.create(model="m", input=items, tools=tools)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return
            items += response.output
            items += await asyncio.gather(*(run_tool_call_async(manager, call) for call in calls))

    @staticmethod
    def told(request: Json) -> list[Any]:
        outputs = [item["output"] for item in request["input"] if item.get("type") == "function_call_output"]
        return [output[0]["text"] if len(output) == 1 else output for output in outputs]

    @staticmethod
    def named(request: Json) -> list[str]:
        return [tool["name"] for tool in request["tools"]]


Api = type[Chat] | type[Responses]
Run = Callable[..., Endpoint]


def written(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


@pytest.fixture(params=[Chat, Responses])
def api(request: pytest.FixtureRequest) -> Api:
    chosen: Api = request.param
    return chosen


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, api: Api, manager: MCPClientManager) -> Run:
    """Runs the loop to its end with a script of turns; returns the endpoint, which was asked."""

    async def awaited(url: str) -> None:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            await api.run_async(manager, client)

    def run(*steps: Step) -> Endpoint:
        with scripted_endpoint(*steps, api.turn()) as endpoint:
            if request.param == "async":
                asyncio.run(awaited(endpoint.url))
            else:
                with OpenAI(base_url=endpoint.url, api_key="none", max_retries=0) as client:
                    api.run(manager, client)
        return endpoint

    return run


def test_the_loop_calls_the_tools(api: Api, run: Run) -> None:
    endpoint = run(api.turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert api.told(endpoint.requests[-1]) == ['{"sum": 21}', "hello"]


def test_a_server_killed_between_calls_is_back_for_the_next_one(
    api: Api, run: Run, killer: Killer, ledger: Ledger
) -> None:
    first, second = (api.turn(("mcp_ledger_record", {"text": text})) for text in ("first", "second"))

    endpoint = run(first, killer.kill, second)

    assert api.told(endpoint.requests[-1]) == ["recorded first, 1 times", "recorded second, 1 times"]
    assert ledger.lines == ["first", "second"]


def test_a_call_in_which_the_server_is_killed_is_not_repeated_and_the_model_is_told(
    api: Api, run: Run, killer: Killer, ledger: Ledger
) -> None:
    with killer.during("held"):
        endpoint = run(
            api.turn(("mcp_ledger_hold", {"text": "held"})), api.turn(("mcp_ledger_record", {"text": "next"}))
        )

    held, after = api.told(endpoint.requests[-1])
    assert "Do not repeat it" in held
    assert after == "recorded next, 1 times"
    assert ledger.lines == ["held", "next"]


def test_a_call_of_a_safe_tool_is_repeated_by_the_manager(api: Api, run: Run, killer: Killer, ledger: Ledger) -> None:
    with killer.during("page"):
        endpoint = run(api.turn(("mcp_ledger_read", {"text": "page"})))

    assert api.told(endpoint.requests[-1]) == ["read page"]
    assert ledger.lines == ["page", "page"]


def test_a_new_tool_is_there_in_the_next_turn(api: Api, run: Run, manager: MCPClientManager) -> None:
    def until_listed() -> None:
        assert wait_until(lambda: "mcp_ledger_grown_1" in [tool.namespaced_name for tool in manager.list_tools()])

    # The second answer comes when the tool is listed, so the third request has it.
    endpoint = run(
        api.turn(("mcp_ledger_grow", {})),
        until_listed,
        api.turn(("mcp_ledger_echo", {"text": "listed"})),
        api.turn(("mcp_ledger_grown_1", {})),
    )

    assert "mcp_ledger_grown_1" not in api.named(endpoint.requests[0])
    assert "mcp_ledger_grown_1" in api.named(endpoint.requests[2])
    assert len(api.told(endpoint.requests[-1])) == 3


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (("mcp_ledger_fail", {"message": "no such note"}), "Error: no such note"),
        (("mcp_ledger_add", {"a": 1}), "missing argument 'b'"),
        (("mcp_ledger_add", '{"a": '), "not valid JSON"),
        (("mcp_ledger_nothing", {}), "had no effect"),
    ],
)
def test_the_model_is_told_of_errors(api: Api, run: Run, call: Called, shown: str) -> None:
    endpoint = run(api.turn(call))

    (told,) = api.told(endpoint.requests[-1])
    assert shown in told
    assert "Do not repeat" not in told


@pytest.mark.parametrize("api", [Responses], indirect=True)
def test_responses_show_images(api: Api, run: Run) -> None:
    endpoint = run(api.turn(("mcp_ledger_picture", {})))

    (told,) = api.told(endpoint.requests[-1])
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    assert told[0] == {"type": "input_text", "text": "one pixel"}
    assert [part for part in told if part["type"] == "input_image"] == [image, image]


@pytest.mark.parametrize("api", [Chat], indirect=True)
def test_chat_completions_name_images(api: Api, run: Run) -> None:
    endpoint = run(api.turn(("mcp_ledger_picture", {})))

    (told,) = api.told(endpoint.requests[-1])
    assert "[image, image/png, 70 bytes]" in told


def test_a_cancelled_task_cancels_its_call(manager: MCPClientManager, ledger: Ledger) -> None:
    function = {"name": "mcp_ledger_hold", "arguments": '{"text": "held"}'}

    async def main() -> None:
        call = run_tool_call_async(
            AsyncMCPClientManager.over(manager), {"type": "function", "id": "1", "function": function}
        )
        running = asyncio.create_task(call)
        await asyncio.to_thread(ledger.wait_for, "held")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    (status,) = manager.status()
    assert (status.in_flight, status.restarts) == (0, 0)


@pytest.mark.parametrize("item", [{"type": "message"}, {"type": "custom", "custom": {"name": "a"}}])
def test_what_is_no_call_of_a_function_is_refused(item: Json) -> None:
    with pytest.raises(ValueError, match=str(item["type"])):
        run_tool_call(MCPClientManager({}), item)
