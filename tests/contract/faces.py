"""The ways to call a tool: each does what the others do, and says how it went in the same words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from gaia.mcp import MCPClient, MCPClientManager, MCPClientMixin
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager
from gaia.mcp.errors import MCPError
from gaia.mcp.gateway import Gateway as GatewayServer
from gaia.mcp.gateway.stdio import serve_lines
from gaia.runtime.cancellation import CancelScope
from tests.contract.wires import Entry, process_of
from tests.gateway.running import running
from tests.waiting import PATIENCE

Json = dict[str, Any]
OnQuestion = Callable[[Any], Any]

NAME = "it"
"""What the server is called."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended, whichever way it was made."""

    text: str = ""
    """Of the content."""
    is_tool_error: bool = False
    error_type: str | None = None
    """Of `gaia.mcp.errors`; None if the tool answered."""
    delivery: str | None = None
    """None if the tool answered, and for a task or future that was cancelled, which does not say it."""
    message: str = ""
    code: int | None = None

    @classmethod
    def of_result(cls, result: Json) -> Outcome:
        if "error_type" in result:
            return cls("", False, result["error_type"], result["delivery"], result["error"], result.get("code"))
        text = "".join(block.get("text", "") for block in result["content"])
        return cls(text, bool(result.get("isError")))

    @classmethod
    def of_error(cls, error: BaseException) -> Outcome:
        if isinstance(error, CancelledError | asyncio.CancelledError):
            return cls(error_type="cancelled")
        if not isinstance(error, MCPError):
            raise error
        return cls("", False, error.error_type, error.delivery, str(error), getattr(error, "code", None))


class Pending:
    """A call that was begun."""

    def __init__(self, future: Future[Any], cancel: Callable[[], object]) -> None:
        self._future = future
        self.cancel = cancel

    def outcome(self) -> Outcome:
        """Wait for its end."""
        try:
            return Outcome.of_result(self._future.result(PATIENCE))
        except (MCPError, CancelledError) as error:
            return Outcome.of_error(error)

    @property
    def done(self) -> bool:
        return self._future.done()


class Face(ABC):
    """One way to call the tools of one server, from the threads of a test."""

    name: ClassVar[str]
    reports_progress: ClassVar[bool] = True
    takes_timeouts: ClassVar[bool] = True
    drains: ClassVar[bool] = False
    cancels_quietly: ClassVar[bool] = False
    """Whether a cancelled call says nothing of its delivery, as tasks and futures do not."""
    is_gateway: ClassVar[bool] = False
    """Whether a call that waits for the server was sent already, to the gateway."""
    takes_transports: ClassVar[bool] = False
    """Whether the server may be a transport with four methods, which no configuration can name."""

    def __init__(self, entry: Entry, *, on_question: OnQuestion | None = None) -> None:
        self._entry = entry
        self._on_question = on_question
        self._threads = ThreadPoolExecutor(64, "contract-caller")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Face:
        try:
            self.connect()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._stack.close()
        self._threads.shutdown()

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Disconnect; harmless when it was called before."""

    def drain(self, seconds: float) -> None:
        """Disconnect when the calls under way have ended."""
        raise NotImplementedError

    @abstractmethod
    def tools(self) -> list[str]:
        """The server's own names of the tools on offer."""

    @abstractmethod
    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        """Call a tool, without waiting. Raises RuntimeError if there is no connection."""

    def call(self, tool: str, arguments: Json | None = None, **options: Any) -> Outcome:
        return self.begin(tool, arguments, **options).outcome()

    def in_thread(self, call: Callable[[], Json]) -> Pending:
        """A call that blocks, in a scope that cancels it."""
        scope = CancelScope()

        def run() -> Json:
            with scope.entered():
                return call()

        return Pending(self._threads.submit(run), scope.cancel)


# Threads --------------------------------------------------------------------------------------------------------------


class Client(Face):
    """`MCPClient.call_tool`."""

    name = "client"
    drains = takes_transports = True
    client: MCPClient

    def connect(self) -> None:
        self.client = MCPClient.from_config(NAME, self._entry, on_elicitation=self._on_question)
        self._stack.enter_context(self.client)

    def close(self) -> None:
        self.client.disconnect()

    def drain(self, seconds: float) -> None:
        self.client.disconnect(drain=seconds)

    def tools(self) -> list[str]:
        return [tool.name for tool in self.client.list_tools()]

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        return self.in_thread(lambda: self.client.call_tool(tool, arguments or {}, **options))


class Request(Client):
    """`MCPClient.request`, which raises."""

    name = "request"
    reports_progress = False

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        params = {"name": tool, "arguments": arguments or {}}
        return self.in_thread(lambda: self.client.request("tools/call", params, **options))


class Submit(Client):
    """`MCPClient.submit_tool`, a future."""

    name = "submit"
    cancels_quietly = True

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        try:
            future = self.client.submit_tool(tool, arguments or {}, **options)
        except MCPError as error:
            # What is not allowed raises at once.
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return Pending(failed, failed.cancel)
        return Pending(future, future.cancel)


class Manager(Face):
    """`MCPClientManager.call_tool`, by the name with the server's before it."""

    name = "manager"
    manager: MCPClientManager

    def connect(self) -> None:
        self.manager = MCPClientManager({NAME: self._entry}, on_elicitation=self._on_question)
        self._stack.enter_context(self.manager)
        self.manager.require(NAME)

    def close(self) -> None:
        self.manager.disconnect_all()

    def tools(self) -> list[str]:
        return [tool.name for tool in self.manager.list_tools()]

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        return self.in_thread(lambda: self.manager.call_tool(f"mcp_{NAME}_{tool}", arguments or {}, **options))


class Host(MCPClientMixin):
    """An agent without anything else."""

    def __init__(self, **settings: Any) -> None:
        self._tools_registry: Json = {}
        super().__init__(**settings)


class Mixin(Face):
    """The functions that `MCPClientMixin` puts into an agent's registry."""

    name = "mixin"
    reports_progress = takes_timeouts = False

    def connect(self) -> None:
        self.host = Host(mcp_servers={NAME: self._entry}, on_elicitation=self._on_question)
        self._stack.callback(self.host.close_mcp)

    def close(self) -> None:
        self.host.close_mcp()

    def _registered(self) -> Json:
        return {name.removeprefix(f"mcp_{NAME}_"): entry for name, entry in self.host._tools_registry.items()}

    def tools(self) -> list[str]:
        return list(self._registered())

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        registered = self._registered()
        if tool not in registered:
            unknown: Future[Any] = Future()
            unknown.set_result({"error_type": "unknown_tool", "delivery": "not_sent", "error": tool})
            return Pending(unknown, unknown.cancel)
        return self.in_thread(lambda: self._result(registered[tool]["function"](**(arguments or {}))))

    @staticmethod
    def _result(answer: Json) -> Json:
        """What the answer to a model was made of."""
        if answer["status"] == "success" or "error_type" in answer["data"]:
            return {"error": answer.get("error"), **answer["data"]}
        return {"content": [{"text": answer["error"]}], "isError": True}


# An event loop --------------------------------------------------------------------------------------------------------


class OnLoop(Face):
    """Faces that are awaited, on a loop that runs in a thread of its own."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def start_loop(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="contract-loop")
        thread.start()
        self._stack.callback(self._loop.close)
        self._stack.callback(thread.join, PATIENCE)
        self._stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
        self._stack.callback(lambda: self.run(self._loop.shutdown_default_executor()))

    def task(self, coroutine: Coroutine[Any, Any, Json]) -> Pending:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return Pending(future, future.cancel)


class AsyncClient(OnLoop):
    """`AsyncMCPClient.call_tool`."""

    name = "async_client"
    cancels_quietly = True
    drains = takes_transports = True

    def connect(self) -> None:
        self.start_loop()
        self.client = AsyncMCPClient.from_config(NAME, self._entry, on_elicitation=self._on_question)
        self.run(self.client.__aenter__())
        self._stack.callback(self.close)

    def close(self) -> None:
        self.run(self.client.disconnect())

    def drain(self, seconds: float) -> None:
        self.run(self.client.disconnect(drain=seconds))

    def tools(self) -> list[str]:
        return [tool.name for tool in self.run(self.client.list_tools())]

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        return self.task(self.client.call_tool(tool, arguments or {}, **options))


class AsyncScope(AsyncClient):
    """The same, cancelled by a `CancelScope` and not with its task."""

    name = "async_scope"
    cancels_quietly = False

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        scope = CancelScope()

        async def call() -> Json:
            with scope.entered():
                return await self.client.call_tool(tool, arguments or {}, **options)

        return Pending(asyncio.run_coroutine_threadsafe(call(), self._loop), scope.cancel)


class AsyncManager(OnLoop):
    """`AsyncMCPClientManager.call_tool`."""

    name = "async_manager"
    cancels_quietly = True

    def connect(self) -> None:
        self.start_loop()
        self.manager = AsyncMCPClientManager({NAME: self._entry}, on_elicitation=self._on_question)
        self.run(self.manager.__aenter__())
        self._stack.callback(self.close)
        self.run(self.manager.require(NAME))

    def close(self) -> None:
        self.run(self.manager.disconnect_all())

    def tools(self) -> list[str]:
        return [tool.name for tool in self.run(self.manager.list_tools())]

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        return self.task(self.manager.call_tool(f"mcp_{NAME}_{tool}", arguments or {}, **options))


class Gateway(OnLoop):
    """Our client of a gateway, which reads and writes the server on its event loop."""

    name = "gateway"
    is_gateway = True
    protocol = "handshake"

    def connect(self) -> None:
        self.start_loop()
        self._gateway = running({NAME: self._entry})
        url = self.run(self._gateway.__aenter__())
        self._stack.callback(lambda: self.run(self._gateway.__aexit__(None, None, None)))
        entry = {"url": f"{url}/mcp", "protocol": self.protocol}
        self.client = MCPClient.from_config("gateway", entry, on_elicitation=self._on_question)
        self._stack.enter_context(self.client)

    def close(self) -> None:
        self.client.disconnect()

    def tools(self) -> list[str]:
        return [tool.name.removeprefix(f"{NAME}_") for tool in self.client.list_tools()]

    def begin(self, tool: str, arguments: Json | None = None, **options: Any) -> Pending:
        return self.in_thread(lambda: self.client.call_tool(f"{NAME}_{tool}", arguments or {}, **options))


class StdioGateway(Gateway):
    """The same over the streams of a process, which is how a client starts a gateway of its own."""

    name = "stdio_gateway"

    def connect(self) -> None:
        self.start_loop()
        listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        serving = self._threads.submit(self._serve, listener)
        self._stack.callback(lambda: serving.result(PATIENCE))
        entry = {**process_of(listener), "protocol": self.protocol}
        self.client = MCPClient.from_config("gateway", entry, on_elicitation=self._on_question)
        self._stack.enter_context(self.client)

    def _serve(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            descriptors = os.dup(client.fileno()), os.dup(client.fileno())
        self.run(serve_lines(GatewayServer({NAME: self._entry}), *descriptors))


class StatelessGateway(Gateway):
    """The same for a client of the other era."""

    name = "stateless_gateway"
    protocol = "stateless"


FACES: tuple[type[Face], ...] = (
    Client,
    Request,
    Submit,
    Manager,
    Mixin,
    AsyncClient,
    AsyncScope,
    AsyncManager,
    Gateway,
    StatelessGateway,
    StdioGateway,
)
