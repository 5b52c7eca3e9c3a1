"""`--timeout` limits all that a command waits for, and loses no answer."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia.cli import time_limit
from gaia.cli.time_limit import OutOfTime
from gaia.mcp.client import MCPClient
from tests.unit.cli.fixture_types import Configure, Invoke, Json, ProcessesOf, Told
from tests.waiting import PATIENCE, wait_until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(time_limit._Limit, "is_cut_short", False)
    yield
    time_limit.end()


def wait() -> None:
    threading.Event().wait(PATIENCE)
    pytest.fail("it was never interrupted")


class TestLimit:
    @pytest.mark.parametrize(("seconds", "passed"), [(0.01, 0), (5, 10)], ids=["then", "at once if it has passed"])
    def test_the_main_thread_is_interrupted(self, seconds: float, passed: float) -> None:
        time_limit.begin(seconds, time.monotonic() - passed)
        with pytest.raises(OutOfTime, match=f"within {seconds} s"):
            wait()

    def test_without_one_nothing_happens(self) -> None:
        former = signal.getsignal(signal.SIGALRM)
        time_limit.begin(None, time.monotonic() - 10)
        with time_limit.paused(), time_limit.closing():
            assert time_limit.remaining() is None
        assert signal.getsignal(signal.SIGALRM) is former

    def test_at_its_end_all_is_as_before(self) -> None:
        handler, timer = signal.signal(signal.SIGALRM, signal.SIG_IGN), signal.setitimer(signal.ITIMER_REAL, 5000)
        try:
            time_limit.begin(60, time.monotonic())
            time_limit.begin(70, time.monotonic())
            time_limit.end()
            assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 1000
        finally:
            # Of pytest-timeout.
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)

    def test_the_time_of_a_person_does_not_count(self) -> None:
        time_limit.begin(60, time.monotonic() - 50)
        assert time_limit.remaining() == pytest.approx(10, abs=9)
        with time_limit.paused():
            assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 20


class TestClosing:
    def test_what_ends_in_time_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "_exit", lambda _: pytest.fail("it waits for nothing"))
        time_limit.begin(60, time.monotonic())
        with time_limit.closing():
            pass
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0, "what follows is limited, too"
        time_limit.leave(0)

    @pytest.mark.parametrize(("status", "code"), [(0, 0), (None, 0), (2, 2), ("words", 1)])
    def test_what_does_not_is_left_to_the_reaper(
        self, status: object, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left: list[int] = []
        monkeypatch.setattr(os, "_exit", left.append)
        monkeypatch.setattr(time_limit, "_CLOSE_SECONDS", 0.01)
        time_limit.begin(5, time.monotonic() - 10)
        with time_limit.closing():
            wait()
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0), "the answer is written in peace"
        time_limit.leave(status)
        assert left == [code]


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of an HTTP server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/mcp"


@pytest.fixture
def servers(configure: Configure, mute: str, demo_server: Json, tmp_path: Path) -> None:
    """Each would be waited for by the test for longer than it takes to fail."""
    configure(
        demo=demo_server | {"timeout": 1000},
        deaf={"command": sys.executable, "args": ["-c", DEAF, str(tmp_path)], "timeout": 1000},
        mute={"url": mute, "timeout": 1000},
    )


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("words", [["call", "mute", "echo"], ["tools", "deaf"]], ids=" ".join)
def test_a_server_that_hangs_at_its_start_is_given_up(words: list[str], run: Invoke, processes_of: ProcessesOf) -> None:
    result = run(*words, "--timeout", "1", "--json")
    assert (result.returncode, json.loads(result.stdout)["error_type"]) == (1, "timeout")
    assert "within 1 s" in result.stderr
    assert wait_until(lambda: processes_of() == [])


@pytest.mark.usefixtures("servers")
def test_a_call_that_is_not_answered_says_that_the_server_may_have_acted(failed: Told) -> None:
    error = failed("call", "demo", "sleep", "seconds=1000", "--timeout", "2")
    assert "was not answered within" in error
    assert "The server may have acted" in error


def test_an_answer_is_not_lost_to_a_server_that_does_not_end(
    configure: Configure, demo_server: Json, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    disconnect = MCPClient.disconnect

    def disconnect_late(client: MCPClient) -> None:
        disconnect(client)
        raise OutOfTime(50)

    monkeypatch.setattr(MCPClient, "disconnect", disconnect_late)
    configure(demo=demo_server)
    result = invoke("call", "demo", "echo", "text=hello", "--timeout", "50")

    assert (result.exit_code, result.output) == (0, "hello\n")


@pytest.mark.usefixtures("servers")
def test_the_list_is_written_and_the_servers_are_left(run: Invoke, processes_of: ProcessesOf) -> None:
    result = run("list", "--timeout", "1")
    assert result.returncode == 0
    assert "starting after 1 s" in result.stdout
    assert wait_until(lambda: processes_of() == [])


def test_a_gateway_that_says_nothing_is_given_up(mute: str, failed: Told) -> None:
    assert "cannot be reached" in failed("list", mute, "--timeout", "0.1")
