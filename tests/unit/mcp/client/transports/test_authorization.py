"""What a transport takes for a login that can be supervised."""

from __future__ import annotations

import httpx2
import pytest

from gaia.mcp.client.transports.authorization import Authorization
from gaia.mcp.client.transports.http import HttpTransport


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
