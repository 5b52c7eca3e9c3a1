"""What a server inherits, and what it does not."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gaia.mcp.client.transports import StdioTransport
from gaia.mcp.client.transports.environment import INHERITED, server_environment
from gaia.mcp.client.transports.guard import MARK_VARIABLE
from tests.unit.mcp.client.transports.conftest import SECRET, call


class TestEnvironment:
    def environment_of(self, transport: StdioTransport) -> dict[str, str]:
        environment: dict[str, str] = call(transport, "env")
        return environment

    @pytest.fixture(autouse=True)
    def our_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OUR_SECRET", SECRET)
        monkeypatch.setenv("LANG", "C.UTF-8")
        monkeypatch.setenv("TERM", "dumb")

    def test_a_server_inherits_what_programs_need_and_none_of_our_secrets(
        self, start: Callable[..., StdioTransport]
    ) -> None:
        environment = self.environment_of(start())
        assert SECRET not in environment.values()
        for name in ("PATH", "HOME", "LANG", "TERM"):
            assert environment[name] == os.environ[name]
        assert set(environment) <= {*INHERITED, MARK_VARIABLE}

    def test_it_inherits_everything_if_that_is_asked_for(self, start: Callable[..., StdioTransport]) -> None:
        environment = self.environment_of(start({"inherit_env": True}))
        assert os.environ.items() - {("PWD", "")} <= environment.items()

    def test_what_is_configured_comes_on_top(self, start: Callable[..., StdioTransport]) -> None:
        environment = self.environment_of(start({"env": {"API_TOKEN": SECRET, "LANG": "tlh"}}))
        assert (environment["API_TOKEN"], environment["LANG"]) == (SECRET, "tlh")

    def test_exported_shell_functions_are_code_and_stay_here(
        self, start: Callable[..., StdioTransport], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "() { echo pwned; }")
        assert "TERM" not in self.environment_of(start())


class TestServerEnvironment:
    def test_what_is_not_set_here_is_not_set_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in INHERITED:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", "")
        assert server_environment(None, inherit_all=False) == {"HOME": ""}

    def test_what_is_configured_counts_whatever_it_looks_like(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert server_environment({"TERM": "() { :; }"}, inherit_all=False)["TERM"] == "() { :; }"

    @pytest.mark.parametrize("inherit_all", [False, True])
    def test_our_own_environment_stays_as_it_is(self, inherit_all: bool) -> None:
        before = dict(os.environ)
        environment = server_environment({"PATH": "/server/bin"}, inherit_all=inherit_all)
        environment["HOME"] = "/elsewhere"
        assert dict(os.environ) == before
