"""`gaia mcp serve` and `gaia mcp bridge`, as far as they get without serving."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from gaia.agents.base import MCPAgent
from gaia.cli.serving import load_mcp_agent
from gaia.runtime.extras import install_command
from tests.silent_agent import SilentAgent


class QuietAgent(MCPAgent, SilentAgent):
    """Offers nothing."""

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return []

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"it is not called: {tool_name} {arguments}")


QUIET = f"{__name__}:QuietAgent"


def test_an_agent_is_made_of_its_class() -> None:
    assert isinstance(load_mcp_agent(QUIET), QuietAgent)


def test_what_is_no_agent_for_mcp_is_a_usage_error(invoke: Callable[..., Any]) -> None:
    # On stdio, the process gives up its own standard streams for the agent's: not for a test in this process.
    result = invoke("serve", "tests.silent_agent:SilentAgent", "--transport", "http")

    assert result.exit_code == 2
    assert "is no MCPAgent, but of type SilentAgent" in result.stderr


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["one=" + QUIET, "one=" + QUIET], "two agents have the namespace 'one'"),
        (["a b=" + QUIET], "'a b' cannot be a namespace"),
        (["=" + QUIET], "'' cannot be a namespace"),
    ],
)
def test_namespaces_that_cannot_be_used_are_told(targets: list[str], message: str, invoke: Callable[..., Any]) -> None:
    result = invoke("bridge", *targets, "--transport", "http", "--port", "0")

    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(("transport", "missing"), [("stdio", "mcp"), ("http", "uvicorn")])
def test_missing_packages_are_named_before_an_agent_is_made(
    transport: str, missing: str, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == missing else find_spec(name, *rest)
    )
    result = invoke("serve", "no_such_module_anywhere:Agent", "--transport", transport)

    assert result.exit_code == 2
    assert f"Serving needs {missing}" in result.stderr
    assert install_command("serve") in result.stderr


@pytest.mark.parametrize("command", ["serve", "bridge"])
@pytest.mark.parametrize(
    "words",
    [
        ["--port", "8000"],
        ["--token", "secret-token"],
        ["--host", "127.0.0.1"],
        ["--allow-host", "x"],
        ["--allow-origin", "http://x"],
        ["--allow-anonymous"],
        ["--grace", "1"],
    ],
)
def test_options_of_http_without_http_are_a_usage_error(
    command: str, words: list[str], invoke: Callable[..., Any]
) -> None:
    result = invoke(command, QUIET, *words)

    assert result.exit_code == 2
    assert f"{words[0]}: for a server over HTTP only" in result.stderr
    assert "--transport http" in result.stderr
    assert "secret-token" not in result.stderr


def test_a_token_in_the_environment_is_no_option(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_SERVE_TOKEN", "secret-token")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    result = invoke("serve", QUIET, "--max-body", "2048", "--threads", "2")

    # It got as far as looking for the packages.
    assert "Serving needs" in result.stderr
