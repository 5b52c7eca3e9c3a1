"""What the commands that serve have in common."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from gaia.cli.options import Options
from gaia.cli.serving import HandedOver, announce, http_options, load, log_without_waiting, run_server
from gaia.cli.terminal import FAILED, USAGE, CommandFailed
from gaia.serving.loading import ServingUnavailable
from gaia.serving.options import HttpOptions, UnsafeOptions
from tests.waiting import PATIENCE


class TestHttpOptions:
    def test_without_options_the_defaults_are_those_of_the_library(self) -> None:
        assert http_options() == HttpOptions()

    def test_each_option_is_passed_on(self) -> None:
        options = http_options("0.0.0.0", 0, "t", ["a.example"], ["https://b.example"], True, 2048, 1.5)

        assert options == HttpOptions(
            host="0.0.0.0",
            port=0,
            token="t",
            allow_hosts=("a.example",),
            allow_origins=("https://b.example",),
            allow_anonymous=True,
            max_body=2048,
            shutdown_grace=1.5,
        )


class TestLoad:
    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("logging", "not of the form package.module:AgentClass"),
            ("no_such_module_anywhere:Agent", "There is no module 'no_such_module_anywhere'"),
            ("logging:NoSuchAgent", "has no 'NoSuchAgent'"),
            ("logging:Logger.manager", "is no HttpOptions, but of type Manager"),
        ],
    )
    def test_a_text_that_names_no_agent_is_a_usage_error(self, target: str, message: str) -> None:
        with pytest.raises(CommandFailed, match=message) as caught:
            load(target, HttpOptions)

        assert caught.value.exit_code == USAGE

    def test_a_constructor_that_fails_is_told_with_its_error(self) -> None:
        # A `Logger` needs a name.
        with pytest.raises(CommandFailed, match="logging:Logger cannot be made: TypeError: ") as caught:
            load("logging:Logger", logging.Logger)

        assert (caught.value.exit_code, caught.value.hint) == (FAILED, "--debug says more.")


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
        def run() -> None:
            raise error

        with pytest.raises(CommandFailed) as caught:
            run_server(run, Options(), "See --token.")
        assert (caught.value.exit_code, caught.value.facts) == (exit_code, {"error_type": error_type})
        assert (caught.value.hint == "See --token.") == isinstance(error, UnsafeOptions)

    def test_a_defect_stays_one(self) -> None:
        def run() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            run_server(run, Options())

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
    handler = HandedOver(writing)
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


def test_a_reader_that_has_gone_costs_nothing_else() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = HandedOver(writing)
    handler.handle(record(LINE))
    assert handler.wait(PATIENCE)
    os.close(writing)


def test_a_standard_error_that_was_replaced_is_left_alone() -> None:
    before = list(logging.root.handlers)
    log_without_waiting()
    assert logging.root.handlers == before
