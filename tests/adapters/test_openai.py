"""A loop with OpenAI's own client, over both of its APIs, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gaia.adapters.calls import Manager
from gaia.adapters.openai import openai_tools, run_tool_call, run_tool_call_async
from gaia.mcp import MCPClientManager
from gaia.mcp.aio import AsyncMCPClientManager
from tests.adapters.conftest import Ledger, assert_idle
from tests.adapters.contract import AdapterContract, Json, Play, Told
from tests.adapters.scripted_turns import Turn, turn, turns_of
from tests.servers.ledger_server import PIXEL
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm

pytest.importorskip("openai", reason="the client of OpenAI is not installed: pip install openai")

from openai import AsyncOpenAI, OpenAI

Called = tuple[str, Json | str]


class Chat(NamedTuple):
    """Chat completions."""

    @staticmethod
    def run(manager: Manager, client: OpenAI) -> None:
        messages: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            completion = client.chat.completions.create(model="m", messages=messages, tools=openai_tools(manager))
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return
            messages += [run_tool_call(manager, call) for call in message.tool_calls]

    @staticmethod
    async def run_async(manager: Manager, client: AsyncOpenAI) -> None:
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
    def run(manager: Manager, client: OpenAI) -> None:
        items: list[Any] = [{"role": "user", "content": "go on"}]
        while True:
            tools: Any = openai_tools(manager, "responses")
            response = client.responses.create(model="m", input=items, tools=tools)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return
            items += [*response.output, *(run_tool_call(manager, call) for call in calls)]

    @staticmethod
    async def run_async(manager: Manager, client: AsyncOpenAI) -> None:
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
Run = Callable[..., ScriptedLLM]


@pytest.fixture(params=[Chat, Responses])
def api(request: pytest.FixtureRequest) -> Api:
    chosen: Api = request.param
    return chosen


@pytest.fixture(params=["sync", "async"])
def run_with(request: pytest.FixtureRequest, api: Api) -> Run:
    """Runs the loop to its end with a manager and a script of turns; returns the endpoint, which was asked."""

    async def awaited(manager: Manager, url: str) -> None:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            await api.run_async(manager, client)

    def run(manager: Manager, *turns: Turn) -> ScriptedLLM:
        with scripted_llm(*turns, Reply("done")) as endpoint:
            if request.param == "async":
                asyncio.run(awaited(manager, endpoint.base_url))
            else:
                with OpenAI(base_url=endpoint.base_url, api_key="none", max_retries=0) as client:
                    api.run(manager, client)
        return endpoint

    return run


@pytest.fixture
def run(run_with: Run, manager: MCPClientManager) -> Run:
    return functools.partial(run_with, manager)


@pytest.mark.parametrize(("api", "run_with"), [(Chat, "sync"), (Responses, "async")], indirect=True)
class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, api: Api, run_with: Run) -> Play:
        return lambda manager, *steps: [
            Told(str(told)) for told in api.told(run_with(manager, *turns_of(*steps)).requests[-1])
        ]


def test_the_calls_of_one_turn_are_answered_in_order(api: Api, run: Run) -> None:
    endpoint = run(turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert api.told(endpoint.requests[-1]) == ['{"sum": 21}', "hello"]


def test_a_new_tool_is_there_in_the_next_turn(api: Api, run: Run, until_grown: Callable[[], None]) -> None:
    # The second answer comes when the tool is listed, so the third request has it.
    endpoint = run(
        turn(("mcp_ledger_grow", {})),
        turn(("mcp_ledger_echo", {"text": "listed"}), after=until_grown),
        turn(("mcp_ledger_grown_1", {})),
    )

    assert "mcp_ledger_grown_1" not in api.named(endpoint.requests[0])
    assert "mcp_ledger_grown_1" in api.named(endpoint.requests[2])
    assert len(api.told(endpoint.requests[-1])) == 3


def test_the_model_is_told_of_errors(api: Api, run: Run) -> None:
    calls: list[Called] = [
        ("mcp_ledger_fail", {"message": "no such note"}),
        ("mcp_ledger_add", {"a": 1}),
        ("mcp_ledger_add", '{"a": '),
        ("mcp_ledger_nothing", {}),
    ]

    failed, missing, unreadable, unknown = api.told(run(turn(*calls)).requests[-1])

    assert failed == "Error: no such note"
    assert "missing argument 'b'" in missing
    assert "not valid JSON" in unreadable
    assert "had no effect" in unknown
    assert "Do not repeat" not in failed + missing + unreadable + unknown


@pytest.mark.parametrize("api", [Responses, Chat], indirect=True)
def test_images_are_shown_by_responses_and_named_by_chat_completions(api: Api, run: Run) -> None:
    (told,) = api.told(run(turn(("mcp_ledger_picture", {}))).requests[-1])

    if api is Chat:
        assert "[image, image/png, 70 bytes]" in told
        return
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    assert told[0] == {"type": "input_text", "text": "one pixel"}
    assert [part for part in told if part["type"] == "input_image"] == [image, image]


def test_a_cancelled_task_cancels_its_call(manager: MCPClientManager, ledger: Ledger) -> None:
    function = {"name": "mcp_ledger_hold", "arguments": '{"text": "held"}'}
    call = {"type": "function", "id": "1", "function": function}
    held = run_tool_call_async(AsyncMCPClientManager.over(manager), call)
    asyncio.run(ledger.cancelled_with("held", held))
    assert_idle(manager)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "message"}, "message"),
        ({"type": "custom", "custom": {"name": "a"}}, "custom"),
        ({"id": "call_1"}, "not None"),
        (None, "not None"),
    ],
    ids=["a message", "a custom tool", "no type", "nothing"],
)
def test_what_is_no_call_of_a_function_is_refused(item: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_tool_call(MCPClientManager({}), item)


def test_another_api_is_refused() -> None:
    with pytest.raises(ValueError, match="api: must be 'chat' or 'responses'"):
        openai_tools(MCPClientManager({}), "completions")
