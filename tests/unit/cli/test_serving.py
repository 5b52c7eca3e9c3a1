"""Commands that serve agents, as far as they get without serving, and what they have in common."""

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

from gaia.agents.base import ApiAgent, MCPAgent
from gaia.api import app as served
from gaia.cli.main import app
from gaia.cli.options import Options
from gaia.cli.serving import (
    BackgroundHandler,
    announce,
    http_options,
    load,
    load_mcp_agent,
    log_without_waiting,
    run_server,
)
from gaia.cli.terminal import FAILED, USAGE, CommandFailed
from gaia.runtime.extras import install_command
from gaia.serving.loading import ServingUnavailable
from gaia.serving.options import HttpOptions, UnsafeOptions
from tests.silent_agent import SilentAgent
from tests.unit.cli.fixture_types import Invoke, Json, Told
from tests.waiting import PATIENCE


def test_each_option_is_passed_on_and_the_defaults_are_those_of_the_library() -> None:
    assert http_options() == HttpOptions()
    assert http_options("0.0.0.0", 0, "t", ["a.example"], ["https://b.example"], True, 2048, 1.5) == HttpOptions(
        host="0.0.0.0",
        port=0,
        token="t",
        allow_hosts=("a.example",),
        allow_origins=("https://b.example",),
        allow_anonymous=True,
        max_body=2048,
        shutdown_grace=1.5,
    )


@pytest.mark.parametrize(
    ("target", "kind", "message", "told"),
    [
        ("logging", HttpOptions, "not of the form package.module:AgentClass", (USAGE, None)),
        ("no_such_module_anywhere:Agent", HttpOptions, "There is no module 'no_such_module_anywhere'", (USAGE, None)),
        ("logging:NoSuchAgent", HttpOptions, "has no 'NoSuchAgent'", (USAGE, None)),
        ("logging:Logger.manager", HttpOptions, "is no HttpOptions, but of type Manager", (USAGE, None)),
        # A `Logger` needs a name.
        (
            "logging:Logger",
            logging.Logger,
            "logging:Logger cannot be made: TypeError: ",
            (FAILED, "--debug says more."),
        ),
    ],
)
def test_a_text_that_names_no_agent_is_told(
    target: str, kind: type, message: str, told: tuple[int, str | None]
) -> None:
    with pytest.raises(CommandFailed, match=message) as caught:
        load(target, kind)
    assert (caught.value.exit_code, told[1] in (None, caught.value.hint)) == (told[0], True)


class TestRunServer:
    @pytest.mark.parametrize(
        ("error", "exit_code", "error_type"),
        [
            (UnsafeOptions("no token"), USAGE, "unsafe_options"),
            (ServingUnavailable("no uvicorn"), USAGE, "extra_missing"),
            (OSError(98, "Address already in use"), FAILED, "cannot_listen"),
        ],
    )
    def test_what_the_user_can_mend_is_told_in_words(self, error: Exception, exit_code: int, error_type: str) -> None:
        with pytest.raises(CommandFailed) as caught:
            run_server(Mock(side_effect=error), Options(), "See --token.")
        assert (caught.value.exit_code, caught.value.facts) == (exit_code, {"error_type": error_type})
        assert (caught.value.hint == "See --token.") == isinstance(error, UnsafeOptions)

    def test_a_defect_stays_one(self) -> None:
        with pytest.raises(ZeroDivisionError):
            run_server(lambda: 1 / 0, Options())

    @pytest.mark.parametrize(("debug", "level"), [(False, logging.WARNING), (True, logging.NOTSET)])
    def test_only_problems_are_logged_unless_debugging(self, debug: bool, level: int) -> None:
        logging.getLogger("gaia").setLevel(logging.NOTSET)
        run_server(lambda: None, Options(debug=debug))
        assert logging.getLogger("gaia").level == level


def test_the_address_is_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    announce("MCP endpoint")("http://127.0.0.1:8000/mcp")
    assert capsys.readouterr() == ("", "MCP endpoint: http://127.0.0.1:8000/mcp\n")


LINE = "x" * 1_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(writing)
    os.close(reading)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("gaia", logging.WARNING, "", 1, text, None, None)


def test_nothing_waits_for_a_reader_and_nothing_is_lost_that_fits(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = BackgroundHandler(writing)
    for _ in range(200):
        handler.handle(record(LINE))
    assert not handler.wait(0.01), "the pipe takes less"
    assert handler.lock is None, "the end of the process would wait for it"
    missing = 200 * (len(LINE) + 1)
    while missing:
        missing -= len(os.read(reading, missing))
    handler.handle(record("last"))
    assert handler.wait(PATIENCE)
    assert os.read(reading, 100) == b"last\n"


def test_a_reader_that_has_gone_costs_nothing_else_and_a_replaced_standard_error_is_left_alone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = BackgroundHandler(writing)
    handler.handle(record(LINE))
    assert handler.wait(PATIENCE)
    os.close(writing)
    before = list(logging.root.handlers)
    log_without_waiting()
    assert logging.root.handlers == before


class QuietAgent(MCPAgent, SilentAgent):
    """Offers nothing."""

    def get_mcp_tool_definitions(self) -> list[Json]:
        return []

    def execute_mcp_tool(self, tool_name: str, arguments: Json) -> Json:
        raise AssertionError(f"it is not called: {tool_name} {arguments}")


QUIET = f"{__name__}:QuietAgent"


def test_an_agent_is_made_of_its_class_and_what_is_none_for_mcp_is_a_usage_error(refused: Told) -> None:
    assert isinstance(load_mcp_agent(QUIET), QuietAgent)
    # On stdio, the process gives up its own standard streams for the agent's: not for a test in this process.
    error = refused("serve", "tests.silent_agent:SilentAgent", "--transport", "http")
    assert "is no MCPAgent, but of type SilentAgent" in error


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["one=" + QUIET, "one=" + QUIET], "two agents have the namespace 'one'"),
        (["a b=" + QUIET], "'a b' cannot be a namespace"),
        (["=" + QUIET], "'' cannot be a namespace"),
    ],
)
def test_namespaces_that_cannot_be_used_are_told(targets: list[str], message: str, refused: Told) -> None:
    assert message in refused("bridge", *targets, "--transport", "http", "--port", "0")


@pytest.mark.parametrize(("transport", "missing"), [("stdio", "mcp"), ("http", "uvicorn")])
def test_missing_packages_are_named_before_an_agent_is_made(
    transport: str, missing: str, refused: Told, hide_package: Callable[[str], None]
) -> None:
    hide_package(missing)
    error = refused("serve", "no_such_module_anywhere:Agent", "--transport", transport)
    assert f"Serving needs {missing}" in error
    assert install_command("serve") in error


@pytest.mark.parametrize("command", ["serve", "bridge"])
def test_options_of_http_without_http_are_a_usage_error(command: str, refused: Told) -> None:
    words = ["--port=8000", "--token=secret-token", "--host=127.0.0.1", "--allow-host=x", "--allow-origin=http://x"]
    error = " ".join(refused(command, QUIET, *words, "--allow-anonymous", "--grace=1").split())
    named = "--allow-anonymous, --allow-host, --allow-origin, --grace, --host, --port, --token: for a server over HTTP"
    assert named in error
    assert "--transport http" in error
    assert "secret-token" not in error


def test_a_token_in_the_environment_is_no_option(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_SERVE_TOKEN", "secret-token")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    result = invoke("serve", QUIET, "--max-body", "2048", "--threads", "2")
    # It got as far as looking for the packages.
    assert "Serving needs" in result.stderr


class CodeAgent(ApiAgent, SilentAgent):
    """The model ``gaia-code``."""


class DataAgent(ApiAgent, SilentAgent):
    """The model ``gaia-data``."""


CODE, DATA = f"{__name__}:CodeAgent", f"{__name__}:DataAgent"


class TestApi:
    @pytest.fixture
    def invoke(self) -> Callable[..., Result]:
        """Run ``gaia api`` in this process."""
        return lambda *words: CliRunner().invoke(app, ["api", *words])

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([CODE, DATA, CODE], "two agents are the same model: gaia-code, gaia-code, gaia-data"),
            (["tests.silent_agent:SilentAgent"], "is no ApiAgent, but of type SilentAgent"),
            (["CodeAgent"], "not of the form package.module:AgentClass"),
            ([CODE, "--host", "0.0.0.0"], "can be reached from other machines"),
            ([CODE, "--token", ""], "the token is empty"),
            ([], "Missing argument"),
        ],
    )
    def test_what_cannot_be_served_is_a_usage_error(self, words: list[str], message: str, refused: Told) -> None:
        assert message in refused("serve", *words)

    def test_each_agent_is_served_as_a_model(self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
        models: list[str] = []

        def serve(agents: list[ApiAgent], options: object, started: Callable[[str], None], max_threads: int) -> None:
            models.extend(f"{agent.get_model_id()} {max_threads}" for agent in agents)
            started("http://127.0.0.1:1/v1")

        monkeypatch.setattr(served, "serve", serve)
        result = invoke("serve", CODE, DATA, "--threads", "3")

        assert (result.exit_code, models) == (0, ["gaia-code 3", "gaia-data 3"])
        assert result.stderr == "API endpoint: http://127.0.0.1:1/v1\n"
