"""A server that is written with the official SDK or FastMCP, in this process: `SdkServer` asks it in memory.

Versions 1 and 2 of the SDK differ in how a server is connected in memory, and in the name of their error.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any

from gaia.agents.base.mcp_context import CAPABILITIES, MCPContext
from gaia.mcp.errors import JsonRpcError
from gaia.testing.fake_state import Content
from gaia.testing.fake_tool import FakePrompt, FakeTool, Json

_METHOD_NOT_FOUND = -32601


class SdkServer:
    """The offers of the server as those of a `FakeServer`. Each request has a session of its own. Thread-safe."""

    def __init__(self, server: Any) -> None:
        """`server` is a ``FastMCP``, an ``MCPServer`` or a low-level ``Server``. Raises ImportError without the SDK."""
        if not (hasattr(server, "name") and hasattr(server, "instructions")):
            raise TypeError(f"expected a FastMCP, or a server of the official SDK, got {server!r}")
        # Of a FastMCP: the SDK's server in it.
        self._server = getattr(server, "_mcp_server", server)
        self.name: str = server.name
        self.instructions: str | None = server.instructions

    def tools(self) -> list[FakeTool]:
        return [FakeTool(self._tool(one["name"]), **one) for one in self._list("tools")]

    def prompts(self) -> list[FakePrompt]:
        return [FakePrompt(self._prompt(one["name"]), **one) for one in self._list("prompts")]

    def resources(self) -> Iterable[tuple[str, Callable[[], Content], Json]]:
        """URI, content and further members of each resource."""
        for one in self._list("resources"):
            uri = one.pop("uri")
            yield uri, self._content(uri), one

    def _tool(self, name: str) -> Callable[..., object]:
        def call(gaia_context: MCPContext, **arguments: Any) -> Json:
            async def report(progress: float, total: float | None, message: str | None) -> None:
                gaia_context.report_progress(progress, total, message)

            async def request(session: Any) -> Any:
                return await session.call_tool(name, arguments, progress_callback=report)

            return self._request(request, gaia_context)

        return call

    def _prompt(self, name: str) -> Callable[..., object]:
        def get(**arguments: str) -> Any:
            return self._request(lambda session: session.get_prompt(name, arguments))["messages"]

        return get

    def _content(self, uri: str) -> Callable[[], Content]:
        def read() -> Content:
            (content,) = self._request(lambda session: session.read_resource(uri))["contents"]
            return base64.b64decode(content["blob"]) if "blob" in content else str(content["text"])

        return read

    def _list(self, kind: str) -> list[Json]:
        async def request(session: Any) -> Any:
            return await getattr(session, f"list_{kind}")()

        try:
            # The caller may run an event loop.
            with ThreadPoolExecutor(1) as thread:
                listed: list[Json] = thread.submit(self._request, request).result()[kind]
        except JsonRpcError as error:
            if error.code != _METHOD_NOT_FOUND:
                raise
            listed = []
        return listed

    def _request(self, request: Callable[[Any], Awaitable[Any]], context: MCPContext | None = None) -> Json:
        """The result of one request, in this thread. Raises JsonRpcError."""

        async def run() -> Any:
            task = asyncio.current_task()
            assert task is not None, "asyncio.run has made it"
            if context is not None:
                context.on_cancel(functools.partial(_cancel, asyncio.get_running_loop(), task))
            async with _session(self._server, **_callbacks(context)) as session:
                # The session would put the exception into a group.
                try:
                    return await request(session)
                except Exception as error:  # noqa: BLE001 - raised outside of the session
                    return error

        answer = asyncio.run(run())
        if isinstance(answer, Exception):
            # Of either version of the SDK.
            data: Any = getattr(answer, "error", None)
            if hasattr(data, "code"):
                raise JsonRpcError(data.code, data.message)
            raise answer
        result: Json = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        return result


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    # The request may have ended, and its loop with it.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)


def _session(server: Any, **callbacks: Any) -> AbstractAsyncContextManager[Any]:
    try:
        from mcp.client.client import Client
    except ImportError:
        from mcp.shared.memory import create_connected_server_and_client_session as connected  # type: ignore[attr-defined]

        return connected(server, **callbacks)  # type: ignore[no-any-return]
    # The other modes have no way back to the client.
    return Client(server, mode="legacy", **callbacks)


def _callbacks(context: MCPContext | None) -> dict[str, Any]:
    """What answers the server's questions, with the client of the fake server."""
    if context is None:
        return {}
    from mcp import types

    def asking(method: str, result: Any) -> Callable[..., Awaitable[Any]]:
        async def ask(_: Any, params: Any = None) -> Any:
            given = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_none=True)
            return result(**await asyncio.to_thread(_ask, context, method, given))

        return ask

    async def log(params: Any) -> None:
        context.log(params.level, params.data, params.logger)

    questions = {
        "elicitation_callback": ("elicitation/create", types.ElicitResult),
        "sampling_callback": ("sampling/createMessage", types.CreateMessageResult),
        "list_roots_callback": ("roots/list", types.ListRootsResult),
    }
    supported = {
        name: asking(*question) for name, question in questions.items() if context.supports(CAPABILITIES[question[0]])
    }
    return {"logging_callback": log, **supported}


def _ask(context: MCPContext, method: str, params: Json) -> Json:
    answer: Json = context.ask({"question": {"method": method, "params": params}})["question"]
    return answer
