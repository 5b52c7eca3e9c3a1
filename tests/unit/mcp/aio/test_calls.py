"""Calls that are awaited: submitted from the loop's thread, ended on it, and cancelled with their tasks."""

import asyncio
import functools
import gc
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry import trace

from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.aio import calls as aio_calls
from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallCancelled, InvalidResponse, JsonRpcError
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.rpc.call import Call
from gaia.mcp.transports.base import MCPTransport
from gaia.runtime.cancellation import CancelScope
from tests.fake_transport import stateless_answers
from tests.tracing import Tracing
from tests.unit.mcp.aio.conftest import Faked, run, until
from tests.waiting import PATIENCE, wait_until

Fake = Callable[..., Faked]

CANCELLED = "notifications/cancelled"


def progress(channel: Any, request: dict[str, Any], *values: int) -> None:
    token = request["params"]["_meta"]["progressToken"]
    for value in values:
        channel.notify("notifications/progress", {"progressToken": token, "progress": value, "message": f"m{value}"})


class TestResults:
    async def test_the_result_and_the_errors_are_those_of_the_synchronous_client(self, faked: Faked) -> None:
        task = asyncio.create_task(faked.client.call_tool("echo", {"text": "hi"}))
        (request,) = await faked.calls(1)
        assert request["params"] == {"name": "echo", "arguments": {"text": "hi"}}
        faked.answer(request, "hi")
        assert (await task).text == "hi"
        task = asyncio.create_task(faked.client.call_tool("echo"))
        faked.channel.answer_error((await faked.calls(2))[1], -32602, "no text")
        result = await task
        assert result["error_type"] == "jsonrpc"
        assert "input validation failed" in result["error"]
        with pytest.raises(ValueError, match="arguments"):
            await faked.client.call_tool("echo", [1])  # type: ignore[arg-type]

    async def test_a_thousand_calls_at_once_need_no_thread_each(self, faked: Faked) -> None:

        # One or the other of the engine may start at any time.
        faked.channel.answer_calls()
        results = await asyncio.gather(*(faked.client.call_tool("echo", {"n": n}) for n in range(1000)))
        assert not any(result.is_error for result in results)
        faked.channel.take_over("tools/call")
        before = set(threading.enumerate())
        tasks = [asyncio.create_task(faked.client.call_tool("echo")) for _ in range(200)]
        requests = (await faked.calls(1200))[-200:]
        threads = len(set(threading.enumerate()) - before)
        for request in reversed(requests):
            faked.answer(request, str(request["id"]))
        assert [result.text for result in await asyncio.gather(*tasks)] == [str(one["id"]) for one in requests]
        assert threads < 10

    async def test_requests_and_listings_are_awaited_too(self, faked: Faked) -> None:
        pages = {None: {"prompts": [{"name": "a"}], "nextCursor": "2"}, "2": {"prompts": [{"name": "b"}]}}
        answers = faked.channel._answers
        answers["prompts/list"] = lambda request: pages[(request.get("params") or {}).get("cursor")]
        answers["resources/read"] = lambda request: {"contents": [{"uri": request["params"]["uri"]}]}
        answers["prompts/get"] = lambda request: {"messages": [], "description": request["params"]["name"]}
        answers["tools/call"] = lambda request: {"content": [], "of": request["params"]["name"]}

        client = faked.client
        assert [prompt["name"] for prompt in await client.list_prompts()] == ["a", "b"]
        assert await client.read_resource("x://a") == {"contents": [{"uri": "x://a"}]}
        assert (await client.get_prompt("greet"))["description"] == "greet"
        assert (await client.request("tools/call", {"name": "echo"}))["of"] == "echo"
        faked.channel.take_over("resources/read")
        task = asyncio.create_task(client.read_resource("x://b"))
        faked.channel.answer_error((await faked.calls(2, "resources/read"))[1], -32002, "gone")
        with pytest.raises(JsonRpcError, match="gone"):
            await task

    async def test_what_the_server_allows_to_keep_is_not_asked_for_twice(self, fake: Fake) -> None:
        faked = fake(protocol="stateless", answers=stateless_answers())
        faked.channel._answers["resources/read"] = lambda _: {"contents": [], "ttlMs": 60_000}

        assert await faked.client.read_resource("x://a") == await faked.client.read_resource("x://a")
        assert faked.sync.read_resource("x://a")["contents"] == []
        assert len(faked.channel.requests("resources/read")) == 1

    async def test_a_transport_that_can_only_wait_does_so_on_a_thread(self) -> None:
        class Own(MCPTransport):
            def connect(self) -> bool:
                return True

            def disconnect(self) -> None:
                pass

            def is_connected(self) -> bool:
                return True

            def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
                thread = threading.current_thread().name
                results: dict[str, Any] = {
                    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}},
                    "tools/list": {"tools": [{"name": "echo"}]},
                    "resources/read": {"contents": [], "thread": thread},
                    "tools/call": {"content": [{"type": "text", "text": thread}]},
                }
                return {"result": results[method]}

        async with AsyncMCPClient("own", Own()) as client:
            assert (await client.call_tool("echo")).text.startswith("mcp-aio")
            assert (await client.read_resource("x://a"))["thread"].startswith("mcp-aio")
            assert (await client.request("tools/call", {"name": "echo"}))["content"][0]["text"].startswith("mcp-aio")
            assert [tool.name for tool in await client.list_tools()] == ["echo"]


class TestCancellation:
    @pytest.mark.parametrize("method", ["read_resource", "request"])
    async def test_so_does_that_of_any_other_request(self, faked: Faked, method: str) -> None:
        argument = "x://a" if method == "read_resource" else "resources/read"
        task = asyncio.create_task(getattr(faked.client, method)(argument))
        await faked.calls(1, "resources/read")
        task.cancel()
        await asyncio.wait([task])
        await until(lambda: faked.channel.requests(CANCELLED), 1)

    async def test_a_scope_around_the_task_cancels_the_call(self, faked: Faked) -> None:

        scope = CancelScope()
        with scope.entered():
            task = asyncio.create_task(faked.client.call_tool("echo"))
            other = asyncio.create_task(faked.client.read_resource("x://a"))
        await faked.calls(1)
        await faked.calls(1, "resources/read")
        scope.cancel()
        assert (await task)["error_type"] == "cancelled"
        with pytest.raises(CallCancelled):
            await other
        with scope.entered():
            assert (await faked.client.call_tool("echo"))["delivery"] == "not_sent"
        assert len(faked.channel.requests("tools/call")) == 1

    async def test_an_answer_that_comes_first_is_as_if_there_was_no_call(self, faked: Faked) -> None:

        task = asyncio.create_task(faked.client.call_tool("echo"))
        (request,) = await faked.calls(1)
        faked.answer(request, "hi")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert faked.channel.requests(CANCELLED) == []


class TestClosedLoops:
    def test_a_loop_that_is_closed_disturbs_no_other_call(self, faked: Faked) -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(faked.client.call_tool("echo"))
        loop.run_until_complete(faked.calls(1))
        loop.close()
        (request,) = faked.channel.requests("tools/call")
        # The reader ends a call that no loop waits for.
        faked.answer(request, "hi")
        faked.channel.answer_calls()
        assert not faked.sync.call_tool("echo").is_error
        assert not run(faked.client.call_tool("echo")).is_error
        assert not task.done()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task
        gc.collect()

    @pytest.mark.parametrize("on_progress", [None, print])
    def test_its_calls_end_at_their_deadlines_and_so_do_their_spans(
        self, faked: Faked, tracing: Tracing, on_progress: Any
    ) -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(faked.client.call_tool("echo", timeout=0.2, on_progress=on_progress))
        loop.run_until_complete(faked.calls(1))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task, loop
        assert wait_until(lambda: len(faked.channel.requests(CANCELLED)) == 1)
        (span,) = tracing.wait_for("tools/call echo")
        assert (span.attributes or {})["error.type"] == "timeout"
        gc.collect()

    def test_asyncio_run_cancels_what_is_left(self, faked: Faked) -> None:
        async def main() -> "asyncio.Task[Any]":
            task = asyncio.create_task(faked.client.call_tool("echo"))
            await faked.calls(1)
            return task

        assert run(main()).cancelled()
        assert wait_until(lambda: len(faked.channel.requests(CANCELLED)) == 1)


class TestProgress:
    async def test_coroutine_functions_run_one_after_the_other_before_the_result(self, faked: Faked) -> None:
        told: list[Any] = []
        running: list[int] = []

        async def on_progress(value: float, total: float | None, message: str | None) -> None:
            assert running == []
            running.append(1)
            await asyncio.sleep(0.001)
            running.clear()
            told.append((value, total, message, threading.current_thread()))

        task = asyncio.create_task(faked.client.call_tool("echo", on_progress=on_progress))
        (request,) = await faked.calls(1)
        progress(faked.channel, request, *range(20))
        faked.answer(request, "hi")
        assert (await task).text == "hi"
        assert len(told) == 20
        assert told == [(n, None, f"m{n}", threading.main_thread()) for n in range(20)]

    async def test_they_run_while_the_call_goes_on_and_may_be_functions(self, faked: Faked) -> None:
        told = asyncio.Event()
        task = asyncio.create_task(faked.client.call_tool("echo", on_progress=lambda *_: told.set()))
        (request,) = await faked.calls(1)
        progress(faked.channel, request, 1)
        await told.wait()
        assert not task.done()
        faked.answer(request, "hi")
        await task

    @pytest.mark.parametrize("is_async", [True, False])
    def test_what_they_raise_is_logged(self, faked: Faked, caplog: pytest.LogCaptureFixture, is_async: bool) -> None:
        def fail(*_: Any) -> None:
            raise ValueError("a mistake")

        async def fail_later(*_: Any) -> None:
            raise ValueError("a mistake")

        async def main() -> None:
            on_progress = fail_later if is_async else fail
            task = asyncio.create_task(faked.client.call_tool("echo", on_progress=on_progress))
            (request,) = await faked.calls(1)
            progress(faked.channel, request, 1, 2)
            faked.answer(request, "hi")
            assert (await task).text == "hi"

        run(main())
        assert caplog.text.count("a mistake") == 2

    def test_a_report_that_ends_as_cancelled_cancels_no_call(
        self, faked: Faked, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def on_progress(*_: Any) -> None:
            sending = asyncio.create_task(asyncio.Event().wait())
            sending.cancel()
            await sending

        async def main() -> None:
            task = asyncio.create_task(faked.client.call_tool("echo", on_progress=on_progress))
            (request,) = await faked.calls(1)
            progress(faked.channel, request, 1)
            faked.answer(request, "hi")
            assert (await task).text == "hi"

        run(main())
        assert "progress_callback_failed" in caplog.text
        assert not faked.channel.requests(CANCELLED)

    async def test_a_cancelled_task_cancels_a_report_that_it_is_in_and_gets_no_other(self, faked: Faked) -> None:
        told: list[float] = []

        async def on_progress(value: float, *_: Any) -> None:
            told.append(value)
            await asyncio.Event().wait()

        task = asyncio.create_task(faked.client.call_tool("echo", on_progress=on_progress))
        (request,) = await faked.calls(1)
        progress(faked.channel, request, 1, 2)
        await until(lambda: told, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: faked.channel.requests(CANCELLED), 1)
        assert told == [1]

    async def test_what_waits_for_a_task_that_is_slow_is_bounded(self, faked: Faked) -> None:
        told: list[float] = []

        task = asyncio.create_task(faked.client.call_tool("echo", on_progress=lambda value, *_: told.append(value)))
        (request,) = await faked.calls(1)
        # The loop does not run meanwhile.
        progress(faked.channel, request, *range(10_100))
        faked.answer(request, "hi")
        await task
        assert told[-1] == 10_099
        assert len(told) <= 10_000


class TestSpans:
    async def test_that_of_a_call_is_a_child_of_the_tasks_and_ends_with_the_call(
        self, faked: Faked, tracing: Tracing
    ) -> None:
        faked.channel.answer_calls()
        tracer = tracing.provider.get_tracer("application")

        async def one(name: str) -> None:
            with tracer.start_as_current_span(name):
                await faked.client.call_tool("echo")
                assert tracing.calls[-1].end_time is not None
                await faked.client.call_tool("look", on_progress=print)

        await asyncio.gather(*(one(f"task {n}") for n in range(5)))
        parents = {span.context.span_id: span.name for span in tracing.all if span.name.startswith("task")}
        for tool in ("echo", "look"):
            spans = [span for span in tracing.calls if span.name == f"tools/call {tool}"]
            assert sorted(parents[span.parent.span_id] for span in spans if span.parent) == [
                f"task {n}" for n in range(5)
            ]

    @pytest.mark.parametrize("on_progress", [None, print])
    async def test_that_of_a_cancelled_call_ends_as_well(
        self, faked: Faked, tracing: Tracing, on_progress: Any
    ) -> None:

        task = asyncio.create_task(faked.client.call_tool("echo", on_progress=on_progress))
        await faked.calls(1)
        task.cancel()
        await asyncio.wait([task])
        (span,) = tracing.wait_for("tools/call echo")
        assert (span.attributes or {})["error.type"] == "cancelled"

    async def test_those_of_connecting_are_children_too(self, fake: Fake, tracing: Tracing) -> None:
        faked = fake()
        faked.sync.disconnect()
        tracing.clear()

        with tracing.provider.get_tracer("application").start_as_current_span("outer") as span:
            assert trace.get_current_span() is span
            await faked.client.list_tools(refresh=True)
            assert await faked.client.connect()
            await faked.client.list_tools(refresh=True)
        outer = tracing.only("outer")
        listed = [span for span in tracing.named("tools/list") if span.parent is not None]
        assert outer.context.span_id in [span.parent.span_id for span in listed if span.parent]


async def test_an_internal_error_of_a_result_check_is_an_error_of_the_call(fake: Fake) -> None:
    faked = fake(output_validation="error")
    tool = {"name": "typed", "outputSchema": {"type": "object", "required": ["sum"]}}
    faked.transport.tools.append(tool)
    faked.channel._answers["tools/call"] = lambda _: {"content": [], "structuredContent": {}}

    assert len(await faked.client.list_tools(refresh=True)) == 3
    assert (await faked.client.call_tool("typed"))["error_type"] == InvalidResponse.error_type


async def test_calls_of_other_threads_go_on_beside_those_of_a_loop(faked: Faked) -> None:
    faked.channel.answer_calls()
    call = functools.partial(MCPClient.call_tool, faked.sync, "echo")
    errors: list[bool] = []
    thread = threading.Thread(target=lambda: errors.extend(call().is_error for _ in range(100)))

    thread.start()
    results = await asyncio.gather(*(faked.client.call_tool("echo") for _ in range(100)))
    errors.extend(result.is_error for result in results)
    thread.join(PATIENCE)
    assert errors == [False] * 200


async def test_a_task_that_is_cancelled_while_its_result_is_checked_ends_the_observation() -> None:
    calls: list[Call] = []
    checks: list[Callable[[], object]] = []
    route = Mock(submit=lambda call: bool(calls.append(call)) or True)
    new_call = functools.partial(Call, 1, "tools/call", None, time.monotonic(), 30.0, route=route)
    session = Mock(new_call=lambda _exchange, on_done, on_progress: new_call(on_done=on_done, on_progress=on_progress))
    client = Mock(session=session, is_stateless=False)
    observation = Mock()
    exchange = RequestExchange(
        "tools/call",
        options=CallOptions(on_progress=lambda *_: None),
        observation=observation,
        check=Mock(fails_call=True, submit=checks.append, problem=lambda _: None, passes=lambda _: False),
    )

    task = asyncio.create_task(aio_calls.request(client, exchange))
    await until(lambda: calls, 1)
    calls[0].finish({"content": []})
    await until(lambda: checks, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    checks[0]()
    observation.ended.assert_called_once()
