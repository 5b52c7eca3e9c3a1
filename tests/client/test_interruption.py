"""Signal handlers and finalizers that use a client or a manager which they have interrupted, at any line.

The handlers are called by a trace function, so each line has its turn; `tests/chaos/test_signals.py` has real signals.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import gaia
from gaia.mcp.client import (
    MCPClient,
    MCPClientManager,
    client_engine,
    client_factory,
    configured_servers,
    manager_engine,
    mcp_client_manager,
    server_registry,
    session,
)
from gaia.mcp.client import mcp_client as mcp_client_module
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.requests.exchange import CallOptions
from gaia.mcp.rpc.channel import ChannelListener, Ending, Outgoing
from gaia.mcp.supervision import supervisor as supervisor_module
from tests.fake_transport import FakeTransport
from tests.interruption import Interruption, places, raise_within
from tests.waiting import PATIENCE

Json = dict[str, Any]

OFTEN = 1
"""Every line."""
SOMETIMES = 9
"""Every ninth line, with another first line for each operation."""


class EchoChannel:
    """A server that answers in the thread that asks. It has no locks, which an interrupted thread might hold."""

    def __init__(self, listener: ChannelListener, answers: Json) -> None:
        self.pid: int | None = None
        self.closed = False
        self._listener = listener
        self._answers = answers

    def send(self, item: Outgoing) -> bool:
        if not self.closed and item.begin_write():
            message = json.loads(item.frame)
            answer = self._answers.get(message["method"])
            if answer is not None and "id" in message:
                response = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
                self._listener.message_received(json.dumps(response).encode())
        return True

    cancel = send

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None: ...

    def redact(self, text: str) -> str:
        return text

    def ending(self, wait: float) -> Ending | None:
        return None

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        self.closed = True
        return Ending()

    def after_fork(self) -> None: ...


class EchoTransport(FakeTransport):
    def __init__(self) -> None:
        super().__init__()
        self.answers["tools/call"] = lambda _: {"content": []}
        self.opened: list[EchoChannel] = []

    def open(self, listener: ChannelListener, name: str) -> EchoChannel:  # type: ignore[override]
        channel = EchoChannel(listener, self.answers)
        self.opened.append(channel)
        return channel


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler waits only so long for what this thread, which it has interrupted, would do next."""
    monkeypatch.setattr(supervisor_module, "_STOP_SECONDS", 1.0)
    monkeypatch.setattr(manager_engine, "_TO_BEGIN_SECONDS", 0.2)


class Subject:
    """What is interrupted, and what the handler uses."""

    files: tuple[str, ...] = (str(Path(gaia.__file__).parent), threading.__file__)

    def __init__(self) -> None:
        self.transport = EchoTransport()

    def connected(self) -> "Subject":
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def assert_nothing_is_left(self) -> None:
        self.close()
        assert all(channel.closed for channel in self.transport.opened)


class OneClient(Subject):
    def __init__(self) -> None:
        super().__init__()
        self.client = MCPClient("fake", self.transport, protocol="handshake")

    def connected(self) -> "OneClient":
        assert self.client.connect()
        return self

    def connect(self) -> None:
        self.client.connect()

    def disconnect(self) -> None:
        self.client.disconnect()

    close = disconnect

    def call_tool(self) -> None:
        result = self.client.call_tool("echo", timeout=PATIENCE)
        assert "error" not in result or result["error_type"] != "timeout", result

    def submit_tool(self) -> None:
        self.client.submit_tool("echo", timeout=PATIENCE)

    def look(self) -> None:
        assert self.client.status.name == "fake"
        self.client.list_tools()

    def subscribe(self) -> None:
        self.client.subscribe(lambda _: None)()


class Manager(Subject):
    # Not all that reading and saving a configuration goes through.
    files = (
        mcp_client_manager.__file__,
        manager_engine.__file__,
        configured_servers.__file__,
        client_factory.__file__,
        server_registry.__file__,
        mcp_client_module.__file__,
        client_engine.__file__,
        session.__file__,
    )

    def __init__(self) -> None:
        super().__init__()
        self.manager = MCPClientManager(MCPConfig(f"servers-{next(_numbers)}.json", create=True))

    def connected(self) -> "Manager":
        self.add_server()
        return self

    def add_server(self) -> None:
        self.manager.add_server("fake", {"command": "none", "protocol": "handshake"})

    def disconnect_all(self) -> None:
        self.manager.disconnect_all()

    close = disconnect_all

    def remove_server(self) -> None:
        self.manager.remove_server("fake")

    def call_tool(self) -> None:
        result = self.manager.call_tool("mcp_fake_echo", timeout=PATIENCE)
        assert "error" not in result or result["error_type"] != "timeout", result

    def look(self) -> None:
        self.manager.status()
        self.manager.list_tools()


_numbers = itertools.count()


def every(
    make: Callable[[], Any], operation: Callable[[Any], object], handler: Callable[[Any], object], step: int
) -> Iterator[tuple[Subject, Interruption]]:
    subjects = []

    def interrupt(place: int) -> Interruption:
        subject = make()
        subjects.append(subject)

        def handle() -> None:
            # A call to what is not connected, or not any more, raises RuntimeError.
            with suppress(RuntimeError):
                handler(subject)

        return Interruption(lambda: operation(subject), handle, place, files=subject.files)

    for interruption in places(interrupt, step, first=0 if step == OFTEN else next(_numbers) % step):
        yield subjects[-1], interruption
    subjects[-1].close()


def check(
    make: Callable[[], Any], operation: Callable[[Any], object], handler: Callable[[Any], object], step: int
) -> None:
    threads = threading.active_count()
    for subject, interruption in every(make, operation, handler, step):
        assert interruption.error is None or isinstance(interruption.error, RuntimeError), interruption.where
        subject.assert_nothing_is_left()
    assert threading.active_count() <= threads + 2


def connected_client() -> OneClient:
    return OneClient().connected()


class TestAClient:
    @pytest.mark.parametrize(
        ("handler", "step"),
        [
            (OneClient.disconnect, OFTEN),
            (OneClient.connect, SOMETIMES),
            (OneClient.call_tool, SOMETIMES),
            (OneClient.submit_tool, SOMETIMES),
            (OneClient.look, SOMETIMES),
            (OneClient.subscribe, SOMETIMES),
        ],
    )
    @pytest.mark.parametrize(
        ("make", "operation"),
        [
            (OneClient, OneClient.connect),
            (connected_client, OneClient.disconnect),
            (connected_client, OneClient.call_tool),
            (connected_client, OneClient.submit_tool),
            (connected_client, OneClient.look),
        ],
    )
    def test_any_line(
        self, make: Callable[[], Any], operation: Callable[[Any], object], handler: Callable[[Any], object], step: int
    ) -> None:
        check(make, operation, handler, step)


class TestAManager:
    @pytest.fixture(autouse=True)
    def transports(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[EchoTransport] = []
        monkeypatch.setattr(mcp_client_module, "transport_for", lambda *_: made.pop())
        original = Manager.__init__

        def init(self: Manager) -> None:
            original(self)
            made.append(self.transport)

        monkeypatch.setattr(Manager, "__init__", init)

    @pytest.mark.parametrize(
        ("handler", "step"),
        [(Manager.disconnect_all, 2), (Manager.call_tool, SOMETIMES), (Manager.look, SOMETIMES)],
    )
    @pytest.mark.parametrize(
        ("is_connected", "operation"),
        [
            (False, Manager.add_server),
            (True, Manager.remove_server),
            (True, Manager.disconnect_all),
            (True, Manager.call_tool),
        ],
    )
    def test_any_line(
        self, is_connected: bool, operation: Callable[[Any], object], handler: Callable[[Any], object], step: int
    ) -> None:
        check(lambda: Manager().connected() if is_connected else Manager(), operation, handler, step)


STARTING = ("client/session.py", "supervision/supervisor.py", "runtime/deadlines.py")


class TestAnExceptionInAStart:
    def interrupted(self, place: int) -> tuple[OneClient, str]:
        """A client whose `connect` was interrupted, and where that was."""
        subject = OneClient()
        return subject, raise_within(subject.connect, place, STARTING)

    def test_what_was_begun_is_ended_by_the_next_disconnect(self) -> None:
        for place in itertools.count():
            subject, where = self.interrupted(place)
            subject.disconnect()
            opened = len(subject.transport.opened)
            assert not [thread for thread in threading.enumerate() if "fake-supervisor" in thread.name], where
            subject.assert_nothing_is_left()
            assert len(subject.transport.opened) == opened, where
            if not where:
                break
        assert place > 10

    def test_the_next_connect_starts_a_server_of_its_own(self) -> None:
        for place in itertools.count():
            subject, where = self.interrupted(place)
            assert subject.client.connect(), where
            assert sum(not channel.closed for channel in subject.transport.opened) == 1, where
            subject.assert_nothing_is_left()
            if not where:
                break
        assert place > 10


ENGINE = (
    "rpc/call.py",
    "rpc/connection.py",
    "runtime/deadlines.py",
    "supervision/call_queue.py",
    "requests/caller.py",
    "requests/client_requests.py",
    "requests/exchange.py",
    "requests/submitted_request.py",
)


class Silent:
    """A client of a server that answers no call, or of one whose calls wait for the server."""

    def __init__(self, *, waiting: bool = False) -> None:
        transport = EchoTransport()
        del transport.answers["tools/call"]
        self.client = MCPClient("fake", transport, protocol="handshake")
        assert self.client.connect()
        self.call_queue = self.client._engine.session.supervisor.call_queue  # type: ignore[attr-defined]
        self.connection = self.call_queue.ready
        if waiting:
            self.call_queue.suspend()
        self.futures: list[Any] = []

    def submit(self) -> None:
        self.futures.append(self.client.submit_tool("echo", timeout=3600.0))

    def relay(self) -> None:
        request = self.client._engine.tool_calls.new_request("echo", {}, CallOptions(3600.0))
        request.owner = Mock()
        self.client._engine.requests.session.new_call(request).start(self.client._engine.requests.deadlines)

    def call(self) -> None:
        self.client.call_tool("echo", timeout=0.001)

    def cancel(self) -> None:
        self.futures[-1].cancel()

    def finish(self) -> None:
        """As a refusal would, in this thread."""
        call = next(iter(self.connection._in_flight.values()), None) or self.call_queue._backlog[0]
        self.call_queue.expire(call)

    def assert_no_call_is_left(self) -> None:
        assert self.connection._in_flight == {}
        assert list(self.call_queue._backlog) == []


@pytest.fixture(params=[False, True], ids=["written", "waiting"])
def silent(request: pytest.FixtureRequest) -> Iterator[Silent]:
    silent = Silent(waiting=request.param)
    yield silent
    silent.client.disconnect()


class TestAnExceptionOfAHandler:
    """It ends the operation, wherever it comes, and no call stays behind in a table."""

    @pytest.mark.parametrize("operation", [Silent.submit, Silent.relay, Silent.call])
    def test_in_a_new_call(self, silent: Silent, operation: Callable[[Silent], None]) -> None:
        for place in itertools.count():
            where = raise_within(lambda: operation(silent), place, ENGINE)
            if silent.futures:
                # It came after all that is ours, or not at all.
                silent.futures.pop().cancel()
            elif not where and operation is Silent.relay:
                break
            try:
                silent.assert_no_call_is_left()
            except AssertionError as error:
                raise AssertionError(where) from error
            if not where:
                break
        assert place > 10

    @pytest.mark.parametrize("operation", [Silent.cancel, Silent.finish])
    def test_in_the_end_of_a_call(self, silent: Silent, operation: Callable[[Silent], None]) -> None:
        for place in itertools.count():
            silent.submit()
            future = silent.futures[-1]
            where = raise_within(lambda: operation(silent), place, ENGINE)
            if not silent.call_queue.in_flight and not len(silent.call_queue):
                silent.assert_no_call_is_left()
                if operation is Silent.finish:
                    assert isinstance(future.exception(PATIENCE), MCPError), where
            # At the latest now.
            future.cancel()
            assert future.done(), where
            silent.assert_no_call_is_left()
            if not where:
                break
        assert place > 10
