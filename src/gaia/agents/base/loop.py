"""The tool loop: ask the model, make the calls that it requests, and report their results, until it answers."""

from __future__ import annotations

import contextvars
import functools
import json
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from gaia.agents.base import agent_spans
from gaia.agents.base.agent_result import AgentResult, Outcome, Step, StopReason, ToolCall, Usage
from gaia.agents.base.chat import ChatModel, Completion, Message, RequestedCall
from gaia.agents.base.console import Console
from gaia.agents.base.llm import LLMError
from gaia.agents.base.tool_executor import (
    CallNotMade,
    PreparedCall,
    ResultBudget,
    ToolExecutor,
    error_result,
    parse_arguments,
    text_of_result,
)
from gaia.agents.base.tool_schema import api_names, name_for_api, tool_definition
from gaia.agents.base.tools import viewed_through
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.threads import DaemonPool

_CANCELLED = "The run was cancelled before the call was answered."
_FINAL_REASONS: Mapping[str | None, StopReason] = {"length": "length", "content_filter": "content_filter"}


class RunningAgent(Protocol):
    console: Console
    max_parallel_tools: int
    result_budget: ResultBudget

    @property
    def system_prompt(self) -> str: ...
    @property
    def _tool_executor(self) -> ToolExecutor: ...
    def _execute_tool(self, tool_name: str, tool_args: dict[str, Any]) -> Any: ...


class Run:
    """One run of an agent. Only its own thread calls the methods, except for `cancel`."""

    def __init__(self, agent: RunningAgent, prompt: str, history: Iterable[Message], max_steps: int) -> None:
        self.scope = CancelScope()
        self._agent = agent
        self._max_steps = max_steps
        self._messages: list[Message] = [*history, {"role": "user", "content": prompt}]
        self._steps: list[Step] = []
        self._text = ""

    def cancel(self) -> bool:
        """End the run from any thread. False if it was already cancelled."""
        return self.scope.cancel()

    def execute(self, model: ChatModel) -> AgentResult:
        """Run to the end. Raises `LLMError`, with the work so far in its `result`.

        An exception from outside, such as KeyboardInterrupt, cancels all calls under way and is raised again.
        """
        try:
            with self.scope.entered(), viewed_through(self._agent._tool_executor.registry):
                return self._result(self._go(model))
        except LLMError as error:
            error.result = self._result("error")
            raise
        except BaseException:
            self.scope.cancel()
            raise

    def _go(self, model: ChatModel) -> StopReason:
        for number in range(1, self._max_steps + 1):
            self._agent.console.print_step(number, self._max_steps)
            started = time.monotonic()
            self._text = ""
            try:
                completion = self._ask(model)
            except WorkCancelled:
                if self._text:
                    self._agent.console.end_text()
                self._say(self._text)
                self._steps.append(Step(self._text, (), Usage(), time.monotonic() - started))
                return "cancelled"
            calls = self._make_calls(completion.tool_calls) if completion.tool_calls else ()
            self._remember(completion, calls)
            self._steps.append(Step(completion.text, calls, completion.usage, time.monotonic() - started))
            if self.scope.cancelled:
                return "cancelled"
            if not calls:
                return _FINAL_REASONS.get(completion.finish_reason, "answer")
        return "step_limit"

    def _result(self, stop_reason: StopReason) -> AgentResult:
        return AgentResult(
            answer=next((step.text for step in reversed(self._steps) if step.text), ""),
            steps=tuple(self._steps),
            usage=sum((step.usage for step in self._steps), Usage()),
            stop_reason=stop_reason,
            messages=tuple(self._messages),
        )

    # The model.

    def _ask(self, model: ChatModel) -> Completion:
        agent = self._agent
        system = agent.system_prompt
        messages = [*([{"role": "system", "content": system}] if system else []), *self._messages]
        tools = self._tool_definitions()

        with agent_spans.chat_span(str(getattr(model, "model", "")) or type(model).__name__) as span:
            ask = {0: lambda say: model.complete(messages, tools, say)}
            for event in work(ask, scope=self.scope, name=f"{type(agent).__name__}-model", limit=1):
                if isinstance(event, str):
                    self._text += event
                    agent.console.print_text(event)
                    continue
                if self._text:
                    agent.console.end_text()
                if event.error is not None:
                    raise event.error
                usage = event.value.usage
                agent_spans.set_completion(
                    span, usage.prompt_tokens, usage.completion_tokens, event.value.finish_reason
                )
                return event.value
        raise AssertionError("the work ended without an end")

    def _tool_definitions(self) -> list[dict[str, Any]]:
        registry = dict(self._agent._tool_executor.registry.items())
        return [
            tool_definition(name, registry[key])
            for name, key in api_names(registry).items()
            # An entry without a function is only listed.
            if callable(registry[key].get("function"))
        ]

    def _remember(self, completion: Completion, calls: Sequence[ToolCall]) -> None:
        if not completion.tool_calls:
            self._say(completion.text)
            return
        requested = [
            {
                "id": request.id,
                "type": "function",
                # Endpoints refuse malformed names or arguments, even the model's own. The call's answer explains the
                # problem.
                "function": {
                    "name": name_for_api(request.name) if request.name else "unnamed",
                    "arguments": json.dumps(call.arguments or {}),
                },
            }
            for request, call in zip(completion.tool_calls, calls, strict=True)
        ]
        self._messages.append({"role": "assistant", "content": completion.text or None, "tool_calls": requested})
        for call in calls:
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": call.content})

    def _say(self, text: str) -> None:
        if text:
            self._messages.append({"role": "assistant", "content": text})

    # The tools.

    def _make_calls(self, requests: Sequence[RequestedCall]) -> tuple[ToolCall, ...]:
        ended: dict[int, ToolCall] = {}
        ready: dict[int, PreparedCall] = {}
        for number, request in enumerate(requests):
            # One after the other, because a person may be asked.
            prepared = self._prepare(request)
            if isinstance(prepared, ToolCall):
                ended[number] = prepared
            else:
                ready[number] = prepared
        try:
            for event in work(
                {number: functools.partial(self._make, call) for number, call in ready.items()},
                scope=self.scope,
                name=f"{type(self._agent).__name__}-tool",
                limit=self._agent.max_parallel_tools,
            ):
                if isinstance(event, Done):
                    if event.error is not None:
                        # `_execute_tool` raises only exceptions that stop a program.
                        raise event.error
                    identifier, call, outcome = requests[event.key].id, ready[event.key], _outcome_of(event.value)
                    ended[event.key] = self._ended(
                        identifier, call.key, call.arguments, outcome, event.value, event.duration
                    )
        except WorkCancelled:
            for number in ready.keys() - ended.keys():
                call = ready[number]
                ended[number] = ToolCall(requests[number].id, call.key, call.arguments, "cancelled", _CANCELLED, 0.0)
        return tuple(ended[number] for number in range(len(requests)))

    def _prepare(self, request: RequestedCall) -> PreparedCall | ToolCall:
        """Check a call before any call runs, and ask for confirmation. Problems become a text for the model."""
        executor, name = self._agent._tool_executor, str(request.name)
        arguments: dict[str, Any] | None = None
        try:
            arguments = parse_arguments(request.arguments, name)
            call = executor.prepare(name, arguments)
            if self.scope.cancelled:
                raise CallNotMade(_CANCELLED, call.key, "cancelled")
            executor.confirm(call)
            return call
        except CallNotMade as reason:
            return self._ended(request.id, reason.tool, arguments, reason.outcome, error_result(str(reason)))

    def _make(self, call: PreparedCall, _say: Say) -> Any:
        with call.under_way():
            return self._agent._execute_tool(call.key, dict(call.arguments))

    def _ended(
        self, identifier: str, tool: str, arguments: Any, outcome: Outcome, result: Any, duration: float = 0.0
    ) -> ToolCall:
        content = self._agent.result_budget.fit(text_of_result(result), tool)
        self._agent.console.print_tool_outcome(tool, outcome, duration)
        return ToolCall(identifier, tool, arguments, outcome, content, duration)


def _outcome_of(value: Any) -> Outcome:
    if not isinstance(value, Mapping) or value.get("status") != "error":
        return "success"
    data = value.get("data")
    return "cancelled" if isinstance(data, Mapping) and data.get("error_type") == "cancelled" else "error"


Key = TypeVar("Key")
Value = TypeVar("Value")

Say = Callable[[str], None]
"""A job's argument, with which it reports a text before its end."""


class WorkCancelled(Exception):
    """The scope of the work was cancelled. Started jobs may still run."""


@dataclass(frozen=True, slots=True)
class Done(Generic[Key, Value]):
    key: Key
    value: Value
    error: BaseException | None
    duration: float


def work(
    jobs: Mapping[Key, Callable[[Say], Value]], *, scope: CancelScope, name: str, limit: int
) -> Iterator[str | Done[Key, Value]]:
    """Run the jobs, at most `limit` at once, and yield their texts and ends in order of occurrence.

    Each job runs in a copy of the caller's context. Raises `WorkCancelled` as soon as `scope` is cancelled; jobs that
    have not started then never start. Raises RuntimeError if the system cannot start a thread.
    """
    events: queue.SimpleQueue[str | Done[Key, Value] | None] = queue.SimpleQueue()

    def run(key: Key, job: Callable[[Say], Value]) -> None:
        if scope.cancelled:
            return
        started = time.monotonic()
        value: Any = None
        error: BaseException | None = None
        try:
            value = job(events.put)
        except BaseException as caught:  # noqa: BLE001 - it is raised again where the results are read
            error = caught
        events.put(Done(key, value, error, time.monotonic() - started))

    pool = DaemonPool(name, limit)
    forget = scope.on_cancel(lambda: events.put(None))
    try:
        for key, job in jobs.items():
            pool.submit(functools.partial(contextvars.copy_context().run, run, key, job))
        unfinished = len(jobs)
        while unfinished:
            event = events.get()
            if event is None:
                raise WorkCancelled
            unfinished -= isinstance(event, Done)
            yield event
    finally:
        forget()
        pool.close()
