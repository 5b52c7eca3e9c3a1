"""Two gateways with the same key behind HAProxy: clients of both eras, ours and the official one, lose no session."""

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.supervision.events import ResourceUpdated
from tests.gateway.gateway_process import GatewayProcess, gateway_process
from tests.gateway.test_load_balancer import (
    AFTER,
    BEFORE,
    CLIENTS,
    HAPROXY,
    FaultServer,
    Load,
    executions,
    is_avoided,
    load_balancer,
    two_gateways,
)
from tests.serving.served import Served, http_server
from tests.waiting import PATIENCE, wait_until

pytestmark = [
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed"),
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TEXT = "files:///text"
ERAS = ("legacy", "legacy", "legacy", "auto")
"""Of each kind of client: three sessions, so that both gateways have some of them, and one client without a session."""
STATELESS = {"ours3", "other3"}
SESSIONS = Counter({"GAIA": 3, "mcp": 3})

Call = Callable[..., Awaitable[str]]
"""Calls a tool. The answer's text, or "error_type/delivery"."""


@pytest.fixture(scope="module")
def agent(starts_programs: None) -> Iterator[Served]:
    """A server that both gateways share, with a resource and questions."""
    with http_server("tests.gateway.combination_agent:CombinationAgent", env={"NAME": "files"}) as served:
        yield served


@contextlib.contextmanager
def balanced(folder: Path, fault_server: FaultServer, agent: Served) -> Iterator[tuple[list[GatewayProcess], int]]:
    key = folder / "state.key"
    key.write_text("k" * 44)
    key.chmod(0o600)
    shared = {"files": {"url": agent.url}}
    with (
        two_gateways(folder, fault_server, "--state-key", str(key), servers=shared) as gateways,
        load_balancer(folder, gateways) as port,
    ):
        yield gateways, port


class Clients:
    """Clients behind the load balancer, and what they were told. Their people answer once they are `released`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.released = threading.Event()
        self.asked = 0
        self.told: Counter[str] = Counter()
        """Updates of the resource, by client."""
        self.calls: dict[str, Call] = {}
        self._lock = threading.Lock()

    def _is_asked(self) -> None:
        with self._lock:
            self.asked += 1
        assert self.released.wait(PATIENCE)

    @contextlib.contextmanager
    def ours(self) -> Iterator[list[MCPClient]]:
        with contextlib.ExitStack() as stack:
            yield [self._add_ours(stack, f"ours{number}", era) for number, era in enumerate(ERAS)]

    def _add_ours(self, stack: contextlib.ExitStack, name: str, era: str) -> MCPClient:
        def elicited(request: Any) -> Any:
            self._is_asked()
            return request.accept({"name": "Cleo"})

        # One manager has few threads for people who take their time.
        manager = stack.enter_context(MCPClientManager({}, on_elicitation=elicited))
        client = manager.add_server(name, {"url": self.url, "protocol": era})
        client.subscribe(lambda event: self.told.update([name]) if isinstance(event, ResourceUpdated) else None)
        client.subscribe_resource(TEXT)

        async def call(tool: str, **arguments: Any) -> str:
            found = await asyncio.to_thread(client.call_tool, tool, arguments)
            if "error" in found:
                return f"{found['error_type']}/{found['delivery']}"
            return str(found["content"][0]["text"])

        self.calls[name] = call
        return client

    @contextlib.asynccontextmanager
    async def others(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for number, era in enumerate(ERAS):
                await self._add_other(stack, f"other{number}", era)
            yield

    async def _add_other(self, stack: contextlib.AsyncExitStack, name: str, era: str) -> None:
        async def told(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                self.told[name] += 1

        async def elicited(_context: Any, _params: Any) -> types.ElicitResult:
            await asyncio.to_thread(self._is_asked)
            return types.ElicitResult(action="accept", content={"name": "Cleo"})

        client = Client(self.url, mode=era, message_handler=told, elicitation_callback=elicited)
        await stack.enter_async_context(client)
        if era == "legacy":
            await client.subscribe_resource(TEXT)

        async def call(tool: str, **arguments: Any) -> str:
            try:
                found = (await client.call_tool(tool, arguments)).content[0]
            except MCPError as error:
                return f"{type(error).__name__}/unknown: {error}"
            assert isinstance(found, types.TextContent)
            return found.text

        self.calls[name] = call

    async def all(self, tool: str, *, with_text: bool = False, **arguments: Any) -> dict[str, str]:
        """A call by each client at the same time: the answers."""
        names = list(self.calls)
        more = [{"text": f"{name} {tool}"} if with_text else {} for name in names]
        found = await asyncio.gather(
            *(self.calls[name](tool, **arguments, **one) for name, one in zip(names, more, strict=True))
        )
        return dict(zip(names, found, strict=True))


def sessions_at(gateway: GatewayProcess) -> Counter[str]:
    """The programs that have a session there."""
    return Counter(one["program"].split()[0] for one in gateway.ask("GET", "/status").json["sessions"])


@contextlib.asynccontextmanager
async def loaded(port: int) -> AsyncIterator[Load]:
    load = Load(port)
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(load.run, client) for client in range(CLIENTS)]
        try:
            assert await until(lambda: len(load.calls) >= BEFORE)
            yield load
        finally:
            load.stop()
    for one in running:
        one.result()


async def until(condition: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(wait_until, condition)


async def untold(clients: Clients, names: set[str]) -> set[str]:
    """Those of the clients that do not hear of a change of the resource, also once the streams are open again."""
    clients.told.clear()
    deadline = time.monotonic() + PATIENCE
    while (missing := names - clients.told.keys()) and time.monotonic() < deadline:
        await clients.calls["ours0"]("files_change_text")
        await asyncio.sleep(0.05)
    return missing


def test_a_killed_gateway_loses_no_session(
    home: Path, tmp_path: Path, fault_server: FaultServer, agent: Served
) -> None:
    async def use(gateways: list[GatewayProcess], port: int) -> None:
        # The default has too few threads for all that wait at the same time.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
        clients = Clients(port)
        with clients.ours() as ours:
            async with clients.others(), loaded(port) as load:
                watching = set(clients.calls) - {"other3"}
                before = [sessions_at(gateway) for gateway in gateways]
                assert before[0] + before[1] == SESSIONS
                assert all(before[0][program] for program in SESSIONS)
                assert await untold(clients, watching) == set()
                asking = asyncio.create_task(clients.all("files_ask_person"))
                assert await until(lambda: clients.asked == len(clients.calls))
                sleeping = asyncio.create_task(clients.all("it_sleep", seconds=3, with_text=True))
                assert await until(lambda: len([text for text in executions(tmp_path) if "sleep" in text]) == 8)

                gateways[0].signal(signal.SIGKILL)
                await asyncio.to_thread(gateways[0].process.wait, PATIENCE)
                echoed = await clients.all("it_echo", with_text=True)
                clients.released.set()
                slept, answered = await sleeping, await asking
                assert await untold(clients, watching) == set()
                begun = len(load.calls)
                assert await until(lambda: len(load.calls) >= begun + AFTER)
                assert sessions_at(gateways[1]) == SESSIONS, "and none was opened anew"
                assert [client.status.restarts for client in ours] == [0] * len(ERAS)
        executed = executions(tmp_path)

        assert echoed == {name: f"{name} it_echo" for name in clients.calls}
        # Those of the killed gateway may have been executed, which is what their clients are told.
        lost = {name: said for name, said in slept.items() if said != "slept 3 s"}
        assert all("/unknown" in said for said in lost.values())
        assert len(lost.keys() - STATELESS) == before[0].total()
        assert {executed[f"{name} it_sleep"] for name in clients.calls} == {1}
        # A question is asked during the call. In the era without sessions, the round after it needs no gateway.
        unanswered = {name: said for name, said in answered.items() if said != '{"said":"Cleo"}'}
        assert all("/unknown" in said for said in unanswered.values())
        assert unanswered.keys() == lost.keys() - STATELESS

    with balanced(tmp_path, fault_server, agent) as (gateways, port):
        asyncio.run(use(gateways, port))


def test_a_restart_of_one_gateway_after_the_other_fails_no_call_of_any_client(
    home: Path, tmp_path: Path, fault_server: FaultServer, agent: Served
) -> None:
    async def call_on(clients: Clients, name: str, over: asyncio.Event) -> list[str]:
        """Call without a pause. Returns what was not answered."""
        failed, number = [], 0
        while not over.is_set():
            number += 1
            text = f"{name} {number}"
            if (said := await clients.calls[name]("it_echo", text=text)) != text:
                failed.append(said)
        return failed

    async def end(gateway: GatewayProcess, load: Load, state: Path) -> None:
        gateway.signal(signal.SIGTERM)
        assert await until(lambda: gateway.ask("GET", "/ready").status == 503)
        assert await until(lambda: is_avoided(load, state))
        gateway.signal(signal.SIGTERM)
        assert await asyncio.to_thread(gateway.process.wait, PATIENCE) == 0

    async def use(gateways: list[GatewayProcess], port: int) -> list[str]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
        clients, over = Clients(port), asyncio.Event()
        with contextlib.ExitStack() as started, clients.ours() as ours:
            async with clients.others(), loaded(port) as load:
                # Our client listens anew with its next look at the server, after a subscription that has an end.
                watching = set(clients.calls) - STATELESS
                assert all(sessions_at(gateway) for gateway in gateways)
                calling = [asyncio.create_task(call_on(clients, name, over)) for name in clients.calls]
                try:
                    await end(gateways[0], load, tmp_path / "gw1")
                    again = started.enter_context(another(tmp_path, gateways[0]))
                    assert await until(lambda: again.ask("GET", "/ready").status == 200)
                    begun = len(load.calls)
                    assert await until(lambda: len(load.calls) >= begun + AFTER)
                    await end(gateways[1], load, tmp_path / "gw2")
                    assert await untold(clients, watching) == set()
                    assert sessions_at(again) == SESSIONS
                    over.set()
                    failed = [said for one in calling for said in await one]
                    assert [client.status.restarts for client in ours] == [0] * len(ERAS)
                finally:
                    over.set()
                    await asyncio.wait(calling)
        return failed + [call.text for call in load.calls if not call.is_good]

    with balanced(tmp_path, fault_server, agent) as (gateways, port):
        assert asyncio.run(use(gateways, port)) == []


def another(folder: Path, old: GatewayProcess) -> contextlib.AbstractContextManager[GatewayProcess]:
    """The next process of gw1, at the same port."""
    config, key = str(folder / "gw1.json"), str(folder / "state.key")
    return gateway_process("--config", config, "--name", "gw1", "--state-key", key, "--port", str(old.port))
