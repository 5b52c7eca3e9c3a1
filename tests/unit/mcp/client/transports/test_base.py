"""The interface that applications implement, and the wider one that can be supervised."""

from __future__ import annotations

import inspect

import pytest

from gaia.mcp.client.transports import ChannelTransport, MCPTransport, StdioTransport
from tests.fake_transport import FakeTransport
from tests.unit.mcp.client.transports.conftest import Json


class TestInterface:
    def test_it_has_exactly_the_four_methods_of_the_specification(self) -> None:
        methods = {"connect", "disconnect", "send_request", "is_connected"}
        assert MCPTransport.__abstractmethods__ == methods
        assert {name for name, _ in inspect.getmembers(MCPTransport, inspect.isfunction)} == methods

    def test_it_cannot_be_instantiated_without_them(self) -> None:
        class Incomplete(MCPTransport):
            def connect(self) -> bool:
                return True

        with pytest.raises(TypeError, match="abstract"):
            Incomplete()  # type: ignore[abstract]

    def test_four_methods_are_enough(self) -> None:
        class Complete(MCPTransport):
            def connect(self) -> bool:
                return True

            def disconnect(self) -> None:
                return None

            def send_request(self, method: str, params: Json | None = None) -> Json:
                return {"result": {"method": method, "params": params}}

            def is_connected(self) -> bool:
                return True

        assert Complete().send_request("ping") == {"result": {"method": "ping", "params": None}}

    def test_stdio_is_one_and_can_be_supervised(self) -> None:
        assert issubclass(StdioTransport, ChannelTransport)
        assert issubclass(ChannelTransport, MCPTransport)


class TestSupervised:
    """What a transport of an application's own gets from the wider interface."""

    def test_telemetry_is_told_the_transport_and_no_address(self) -> None:
        assert FakeTransport().network == {"network.transport": "pipe"}

    def test_there_is_no_login_unless_it_has_one(self) -> None:
        assert FakeTransport().authorization is None

    def test_it_cannot_be_instantiated_unless_it_opens_channels(self) -> None:
        assert ChannelTransport.__abstractmethods__ == {*MCPTransport.__abstractmethods__, "open"}
