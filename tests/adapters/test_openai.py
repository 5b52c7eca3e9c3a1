"""A loop with OpenAI's own client, over both of its APIs, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from gaia.adapters.openai import openai_tools, run_tool_call, run_tool_call_async
from gaia.adapters.selection import Manager, ToolSelection
from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Ledger
from tests.adapters.contract import AdapterContract, Begin, Json, Play, Told
from tests.adapters.scripted_turns import Turn, turn, turns_of
from tests.servers.ledger_server import DOCUMENT, PIXEL
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

    def run(manager: Manager, *turns: Turn, **selection: Any) -> ScriptedLLM:
        manager = ToolSelection.of(manager, **selection)
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


@pytest.mark.usefixtures("api", "run_with")
@pytest.mark.parametrize(("api", "run_with"), [(Chat, "sync"), (Responses, "async")], indirect=True)
class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, api: Api, run_with: Run) -> Play:
        return lambda manager, *steps, **selection: [
            Told(str(told)) for told in api.told(run_with(manager, *turns_of(*steps), **selection).requests[-1])
        ]

    @pytest.fixture
    def begin(self) -> Begin:
        def begin(manager: MCPClientManager, step: tuple[str, Json]) -> Awaitable[Any]:
            function = {"name": step[0], "arguments": json.dumps(step[1])}
            return run_tool_call_async(manager, {"type": "function", "id": "1", "function": function})

        return begin


def test_the_calls_of_one_turn_are_answered_in_order(api: Api, run: Run) -> None:
    endpoint = run(turn(("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_echo", {"text": "hello"})))

    assert api.told(endpoint.requests[-1]) == ['{"sum": 21}', "hello"]


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
    assert told[-1]["file_data"] == f"data:application/pdf;base64,{DOCUMENT}"


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


def test_a_tool_outside_the_selection_is_not_called(manager: MCPClientManager, ledger: Ledger) -> None:
    readers = ToolSelection(manager, exclude=["record"])
    function = {"name": "mcp_ledger_record", "arguments": '{"text": "next"}'}

    told = run_tool_call(readers, {"type": "function", "id": "1", "function": function})

    assert "has no tool 'mcp_ledger_record'" in told["content"]
    assert ledger.lines == []


def test_another_api_is_refused() -> None:
    with pytest.raises(ValueError, match="api: must be 'chat' or 'responses'"):
        openai_tools(MCPClientManager({}), "completions")
