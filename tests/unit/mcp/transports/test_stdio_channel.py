"""One server behind pipes: what it writes is read, whatever it is, and its end is noticed."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import MCPError, ServerCrashed, StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.stdio_channel import StderrTail
from gaia.runtime.redaction import Redactor
from tests.memory import measured_memory
from tests.unit.mcp.transports.conftest import (
    MEGABYTE,
    PATIENCE,
    SECRET,
    Configure,
    Listener,
    OpenChannel,
    Start,
    both_parents,
    call,
    direct,
    posix,
)
from tests.waiting import wait_until


class TestStarting:
    @pytest.mark.process
    @both_parents
    @pytest.mark.parametrize("number", range(1, 5))
    def test_without_threads_there_is_no_connection_and_nothing_is_left(
        self, parent: str, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin, begun = threading.Thread.start, []

        def start(thread: threading.Thread) -> None:
            begun.append(thread.name)
            if len(begun) >= number:
                raise RuntimeError("can't start new thread")
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        transport = StdioTransport(sys.executable, ["-I", "-S", "-c", "import time; time.sleep(300)"])
        assert transport.connect() is False
        assert len(begun) == number


class TestOutput:
    def test_an_answer_with_windows_line_ends_in_tiny_pieces(self, start: Start) -> None:
        transport = start(line_ending="\r\n", faults=[{"tool": "echo", "chunk_size": 3}])
        assert call(transport, "echo", text="größer") == "größer"

    @pytest.mark.parametrize("size", [100_000, 8 * MEGABYTE])
    def test_large_messages_go_both_ways(self, start: Start, size: int) -> None:
        transport = start()
        text = "ä" * (size // 2)
        assert call(transport, "echo", text=text) == text

    def test_several_large_messages_at_once(self, start: Start) -> None:
        transport = start()
        with ThreadPoolExecutor(4) as pool:
            texts = [letter * MEGABYTE for letter in "abcd"]
            assert list(pool.map(lambda text: call(transport, "echo", text=text), texts)) == texts


class TestStderr:
    def test_its_end_is_told_with_the_secrets_masked(self, fault_server: Configure) -> None:
        stderr = f"first line\nTraceback: bad token {SECRET}\n"
        server = fault_server(exit_at_start={"code": 3, "stderr": stderr})
        listener = Listener()
        channel = StdioTransport(**server, env={"API_TOKEN": SECRET}).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        expected = Ending(exit_code=3, stderr_tail="first line\nTraceback: bad token ***")
        assert channel.ending(PATIENCE) == expected
        assert str(expected) == ("exited with code 3; it last wrote on stderr:\nfirst line\nTraceback: bad token ***")
        assert channel.close(0.0) == expected

    def test_it_goes_to_the_log_with_the_secrets_masked(
        self, fault_server: Configure, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, logger="gaia")
        server = fault_server(exit_at_start={"stderr": f"started with {SECRET}"})
        transport = StdioTransport(**server, env={"API_TOKEN": SECRET})
        transport.connect()
        assert wait_until(lambda: "started with ***" in caplog.text)
        transport.disconnect()
        assert SECRET not in caplog.text


def not_again(timeout: float) -> bool:
    raise AssertionError("it was waited for already")


class TestEnding:
    def test_all_that_was_written_before_the_end_was_delivered_when_it_is_told(self, fault_server: Configure) -> None:
        listener = Listener()
        script = "import os; os.write(1, b'x' * 60000 + b'\\n' + b'last'); os.write(2, b'last words'); os._exit(1)"
        channel = StdioTransport(sys.executable, ["-I", "-S", "-c", script]).open(listener, "test")
        ending = channel.ending(PATIENCE)
        assert ending == Ending(exit_code=1, stderr_tail="last words")
        assert [listener.lines.get_nowait() for _ in range(2)] == [b"x" * 60000, b"last"]
        channel.close(0.0)

    @posix
    def test_a_crash_is_noticed_although_a_child_holds_the_output_open(self, start: Start) -> None:
        transport = start(
            child="own_session", child_keeps_pipes=True, faults=[{"tool": "echo", "crash": "before_answer"}]
        )
        with pytest.raises(ServerCrashed, match="exited with code 1"):
            call(transport, "echo", text="x")

    @posix
    @pytest.mark.parametrize("awaited", [True, False])
    def test_what_a_child_writes_later_is_waited_for_once_and_if_it_may_be_an_answer(
        self, awaited: bool, open_channel: OpenChannel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited = 0.3 if awaited else PATIENCE
        monkeypatch.setattr("gaia.mcp.transports.stdio_channel._DRAIN_SECONDS", waited)
        channel, listener = open_channel(child="own_session", child_keeps_pipes=True)
        listener.awaits = awaited
        assert channel.pid is not None
        began = time.monotonic()
        psutil.Process(channel.pid).kill()
        assert listener.ended.wait(PATIENCE / 2)
        assert not awaited or time.monotonic() - began >= waited
        monkeypatch.setattr(channel, "_drain", not_again)
        assert channel.ending(PATIENCE) == Ending(signal="SIGKILL")
        monkeypatch.undo()

    @direct
    @posix
    def test_closing_does_not_wait_for_ever_for_what_cannot_be_killed(
        self, open_channel: OpenChannel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Another user's process, say, that got the server's output. Its readers end when it does."""
        channel, _ = open_channel(child="own_session", child_keeps_pipes=True)
        assert channel.pid is not None
        (survivor,) = psutil.Process(channel.pid).children()
        monkeypatch.setattr("gaia.mcp.transports.stdio_channel._JOIN_SECONDS", 0.1)
        monkeypatch.setattr("gaia.mcp.transports.direct_process.end_strays", lambda *_: None)
        stdout = channel.popen.stdout
        assert stdout is not None
        channel.close(PATIENCE)
        assert "output_still_open" in caplog.text
        assert not stdout.closed, "or the reader would read from whatever opens next"
        survivor.kill()
        assert wait_until(lambda: stdout.closed)


class TestWedged:
    """A server that reads no more."""

    @pytest.fixture
    def wedged(self, quick: None, start: Start) -> StdioTransport:
        transport = start(faults=[{"on": "ping", "stop_reading": True}])
        transport.send_request("ping")
        transport.timeout = 0.3
        return transport

    def test_callers_time_out_on_time(self, wedged: StdioTransport) -> None:
        def request(number: int) -> tuple[float, MCPError]:
            began = time.monotonic()
            with pytest.raises(TimeoutError) as timeout:
                wedged.send_request("large", {"number": number, "text": "x" * MEGABYTE})
            assert isinstance(timeout.value, MCPError)
            return time.monotonic() - began, timeout.value

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(request, range(8)))
        assert all(elapsed >= 0.3 for elapsed, _ in outcomes)
        assert max(elapsed for elapsed, _ in outcomes) < 10.0
        sent = [error.delivery for _, error in outcomes].count("unknown")
        assert sent < 8, "most of them never began to leave"

    def test_it_can_be_disconnected(self, wedged: StdioTransport) -> None:
        with pytest.raises(TimeoutError):
            wedged.send_request("large", {"text": "x" * 4 * MEGABYTE})
        wedged.disconnect()
        assert not wedged.is_connected()


HIDDEN = "hunter2-hunter2"
WINDOW = 16 * 1024


def tail_of(*chunks: bytes, secret: str = HIDDEN) -> StderrTail:
    tail = StderrTail("test", Redactor([secret]))
    for chunk in chunks:
        tail.feed(chunk)
    return tail


class TestText:
    def test_it_is_the_last_twenty_lines(self) -> None:
        lines = [f"line {number}" for number in range(100)]
        assert tail_of("\n".join(lines).encode()).text() == "\n".join(lines[-20:])

    @given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
    def test_it_does_not_matter_how_it_came(self, stream: bytes, positions: list[int]) -> None:
        edges = [0, *sorted(positions), len(stream)]
        pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
        assert tail_of(*pieces).text() == tail_of(stream).text()

    def test_of_one_endless_line_it_is_the_end_and_a_flood_takes_no_memory(self) -> None:
        text = tail_of(*[b"x" * 1000] * 100, b"end").text()
        assert text.endswith("xend")
        assert WINDOW - 100 <= len(text) <= WINDOW + 1000
        assert not logging.getLogger("gaia").isEnabledFor(logging.DEBUG)
        tail, chunk = tail_of(), b"x" * 65536
        with measured_memory() as memory:
            for _ in range(200):
                tail.feed(chunk)
        assert memory.peak < 4 * 65536

    def test_it_contains_nothing_that_a_terminal_would_act_on(self) -> None:
        assert tail_of(b"\x1b[31mred\x1b[0m\r\n\x07bell\ttab \xff").text() == "red\nbell\ttab \ufffd"


class TestSecrets:
    @pytest.mark.parametrize("coloured", [b"", b"\x1b[0m"])
    def test_they_are_masked_even_if_they_came_in_pieces_or_are_coloured(self, coloured: bytes) -> None:
        assert tail_of(b"token hunter2" + coloured, b"-hunter2 refused").text() == "token *** refused"

    @given(st.integers(0, 3 * len(HIDDEN)), st.sampled_from([1, 7, 1000, 100_000]))
    def test_where_the_kept_part_begins_no_half_of_one_is_left(self, offset: int, chunk_size: int) -> None:
        stream = HIDDEN.encode() * 10 + b"x" * (WINDOW - 2 * len(HIDDEN) + offset)
        text = tail_of(*(stream[start : start + chunk_size] for start in range(0, len(stream), chunk_size))).text()
        assert not any(part in text for part in ("hunter", "unter2", "2-hunt"))


class TestLog:
    def test_whole_lines_are_logged_with_secrets_masked_and_long_ones_in_parts(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, logger="gaia")
        tail = tail_of(b"one\ntwo hunter2", b"-hunter2\nthree")
        assert [record.getMessage() for record in caplog.records] == [
            "server_stderr server='test' text='one'",
            "server_stderr server='test' text='two ***'",
        ]
        tail.finish()
        assert caplog.records[-1].getMessage().endswith("text='three'")
        tail.finish()
        assert len(caplog.records) == 3
        tail_of(*[b"x" * 1000] * 20)
        assert len(caplog.records) == 4

    def test_nothing_is_kept_for_a_log_that_nobody_reads(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="gaia")
        tail = tail_of(b"no end")
        caplog.set_level(logging.DEBUG, logger="gaia")
        tail.finish()
        assert caplog.records == []


def test_the_defaults_are_those_of_the_specification_and_repr_shows_no_secrets() -> None:
    transport = StdioTransport("server")
    assert (transport.command, transport.args, transport.env, transport.cwd) == ("server", None, None, None)
    assert (transport.timeout, transport.debug) == (30, False)
    assert transport._process is None
    with_args = StdioTransport("/bin/server", ["--token", HIDDEN], env={"API_TOKEN": HIDDEN})
    with_line = StdioTransport(f"/bin/server --token {HIDDEN}")
    assert repr(with_args) == repr(with_line) == "StdioTransport('/bin/server', connected=False)"


class TestCommands:
    @pytest.mark.process
    def test_it_runs_a_command_line(self, quick: None) -> None:
        transport = StdioTransport(f"{sys.executable} -I -S -c 'import time; time.sleep(300)'")
        assert transport.connect()
        assert transport.is_connected()
        transport.disconnect()

    def test_a_working_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        with pytest.raises(StartFailed, match=f"the working directory {missing} does not exist"):
            StdioTransport(sys.executable, [], cwd=str(missing)).open(Listener(), "test")

    def test_variables_are_expanded_anew_at_each_start(self, fault_server: Configure) -> None:
        configuration = fault_server()
        tokens = iter(["first", "second"])
        transport = StdioTransport(
            **configuration,
            expand=lambda: (configuration["args"], {"TOKEN": next(tokens)}, []),
            env={"TOKEN": "${TOKEN}"},
        )
        for expected in ("first", "second"):
            transport.connect()
            assert call(transport, "env")["TOKEN"] == expected
            transport.disconnect()
        assert transport.env == {"TOKEN": "${TOKEN}"}
