"""The interface that applications implement, and the wider one that can be supervised."""

from __future__ import annotations

import inspect

import httpx2
import pytest

from gaia.mcp.transports import ChannelTransport, MCPTransport, StdioTransport
from gaia.mcp.transports.base import Authorization
from gaia.mcp.transports.http import HttpTransport
from tests.fake_transport import FakeTransport
from tests.unit.mcp.transports.conftest import Json


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


# What a transport takes for a login that can be supervised.


class Login(httpx2.Auth):
    """Puts a token on requests, and can be supervised."""

    interactive = False
    secrets = ("token-1",)

    def changed(self) -> bool:
        return True

    def log_in(self) -> None:
        raise AssertionError("nobody asks for it")

    def abort(self) -> None:
        raise AssertionError("there is no login under way")

    def reopen(self) -> None:
        raise AssertionError("nothing was aborted")


def make_login() -> Login:
    return Login()


def test_a_login_with_all_parts_is_supervised() -> None:
    login = Login()
    assert HttpTransport("http://host/", auth=login).authorization is login


@pytest.mark.parametrize("auth", [None, httpx2.BasicAuth("me", "password"), make_login])
def test_what_only_signs_requests_is_not(auth: httpx2.Auth | None) -> None:
    assert HttpTransport("http://host/", auth=auth).authorization is None


@pytest.mark.parametrize("part", ["interactive", "secrets", "changed", "log_in", "abort", "reopen"])
def test_a_login_without_one_of_the_parts_is_none(part: str) -> None:
    parts = {name: value for name, value in vars(Login).items() if name != part and not name.startswith("__")}
    assert isinstance(Login(), Authorization)
    assert not isinstance(type("Incomplete", (), parts)(), Authorization)
