"""A client that was dropped while it was connected."""

import gc
import warnings
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client import mcp_client as mcp_client_module
from gaia.mcp.client.client_engine import WeakHooks
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import CallCancelled
from gaia.mcp.supervision.events import Event, ServerState, StateChanged
from tests.fake_transport import FakeTransport
from tests.waiting import PATIENCE, wait_until

ECHO = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
READY = StateChanged("calc", ServerState.STARTING, ServerState.READY, 1, None)


def connected(transport: FakeTransport) -> MCPClient:
    client = MCPClient("calc", transport, protocol="handshake")
    assert client.connect()
    return client


def assert_stopped(transport: FakeTransport) -> None:
    transport.channel().wait_until_closing()


class TestDropping:
    def test_the_last_reference_stops_the_server_and_says_so(self) -> None:
        transport = FakeTransport()
        client = connected(transport)
        gc.disable()
        try:
            with pytest.warns(ResourceWarning, match="client 'calc' was dropped while it was connected"):
                del client
        finally:
            gc.enable()
        assert_stopped(transport)

    def test_its_callback_threads_end(self) -> None:
        transport = FakeTransport()
        client = connected(transport)
        client.subscribe(lambda _: None)
        transport.channel().notify("notifications/message", {"level": "info", "data": "hello"})
        with pytest.warns(ResourceWarning):
            del client
        # The leak check of all tests waits for the threads.

    def test_a_call_that_is_not_waited_for_ends_as_cancelled(self) -> None:
        transport = FakeTransport()
        future = connected(transport).submit_tool
        submitted = future("echo")
        transport.channel().wait_for("tools/call")
        with pytest.warns(ResourceWarning):
            del future
        with pytest.raises(CallCancelled):
            submitted.result(PATIENCE)

    @pytest.mark.parametrize("use", [lambda _: None, MCPClient.connect], ids=["unused", "disconnected"])
    def test_one_that_is_not_connected_is_dropped_silently(self, use: Callable[[MCPClient], object]) -> None:
        client = MCPClient("calc", FakeTransport(), protocol="handshake")
        use(client)
        client.disconnect()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del client
            gc.collect()

    def test_those_of_a_manager_are_stopped_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        transport = FakeTransport()
        monkeypatch.setattr(mcp_client_module, "transport_for", lambda *_: transport)
        managers = [MCPClientManager(MCPConfig("servers.json", create=True))]
        managers[0].add_server("calc", {"command": "none", "protocol": "handshake"})
        managers.clear()
        with pytest.warns(ResourceWarning, match="'calc'"):
            gc.collect()
        assert_stopped(transport)


class TestWeakHooks:
    def test_with_the_client_they_are_its_own(self) -> None:
        client = MCPClient("calc", FakeTransport())
        engine, hooks = client._engine, WeakHooks(client._engine)
        assert hooks.subscriptions is engine.subscriptions
        assert hooks.refusal_of("echo") is None
        hooks.tools_listed([ECHO], hooks.listing_begins())
        assert [tool.name for tool in client.list_tools()] == ["echo"]
        assert hooks.safe_to_repeat("echo")
        assert hooks.last_known() is None
        events: list[Event] = []
        client.subscribe(events.append)
        hooks.happened(READY)
        assert wait_until(lambda: events == [READY])
        client.disconnect()

    def test_without_the_client_nothing_is_told_and_waiting_calls_are_cancelled(self) -> None:
        client = MCPClient("calc", FakeTransport())
        hooks, context = WeakHooks(client._engine), Mock()
        del client
        assert wait_until(lambda: gc.collect() >= 0 and hooks.refusal_of("echo") is not None)
        assert isinstance(hooks.refusal_of("echo"), CallCancelled)
        assert not hooks.safe_to_repeat("echo")
        assert hooks.last_known() is None
        hooks.tools_listed([ECHO], hooks.listing_begins())
        hooks.tools_remembered([ECHO])
        hooks.adopted(context)
        hooks.happened(READY)
