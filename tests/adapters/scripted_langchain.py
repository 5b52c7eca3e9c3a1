"""A model for LangChain that plays a script, and agents that are run with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from pydantic import Field

Json = dict[str, Any]
Run = Callable[[Any], list[ToolMessage]]
"""Runs an agent to its end; returns what it was told of its calls."""

STATE: Json = {"messages": [("user", "go on")]}


class ScriptedModel(GenericFakeChatModel):
    """Makes the calls of its script, one a turn, and answers."""

    shown: list[list[str]] = Field(default_factory=list)
    """The names of the tools at each turn."""
    prompts: list[str] = Field(default_factory=list)
    """The first message of each turn."""

    def _generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        self.prompts.append(messages[0].text)
        return super()._generate(messages, *arguments, **options)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.shown.append([tool.name for tool in tools])
        return self


def scripted(*steps: tuple[str, Json] | Callable[[], object]) -> ScriptedModel:
    """`steps` are calls, and functions that are run between them."""

    def turns() -> Iterator[AIMessage]:
        for number, step in enumerate(steps):
            if callable(step):
                step()
            else:
                yield AIMessage("", tool_calls=[ToolCall(name=step[0], args=step[1], id=f"call_{number}")])
        yield AIMessage("done")

    return ScriptedModel(messages=turns())


def run_sync(agent: Any) -> list[ToolMessage]:
    return _told(agent.invoke(STATE))


def run_async(agent: Any) -> list[ToolMessage]:
    async def main() -> Any:
        final = await agent.ainvoke(STATE)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the agent has left a task behind"
        return final

    return _told(asyncio.run(main()))


def _told(final: Json) -> list[ToolMessage]:
    assert final["messages"][-1].content == "done"
    return [message for message in final["messages"] if isinstance(message, ToolMessage)]
