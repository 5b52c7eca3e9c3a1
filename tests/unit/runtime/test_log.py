"""Log events: warnings and errors until an application says otherwise; one line each, with fields, text or JSON."""

from __future__ import annotations

import datetime as dt
import gc
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

import pytest
import structlog
from opentelemetry import trace

from gaia.mcp import MCPClient
from gaia.runtime import handover as handover_module
from gaia.runtime import log
from gaia.runtime.log import exception_text, get_logger, traceback_text
from tests.tracing import Tracing
from tests.unit.runtime.conftest import on_engine
from tests.unspeakable import Unspeakable
from tests.waiting import PATIENCE

Json = dict[str, Any]


NOTE: ContextVar[str] = ContextVar("NOTE", default="")


@pytest.fixture
def output() -> io.StringIO:
    """Where events go as lines of text; `as_json` has them written as JSON."""
    stream = io.StringIO()
    log.configure(stream=stream)
    return stream


@pytest.fixture
def as_json(output: io.StringIO) -> None:
    log.configure(stream=output, json=True)


def events(output: io.StringIO) -> list[Json]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def run(script: str) -> tuple[bytes, bytes]:
    """What a program writes on stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return done.stdout, done.stderr


EACH_LEVEL = """
import logging
from gaia.runtime.log import get_logger
logger = get_logger("gaia.test")
for emit in (logger.debug, logger.info, logger.warning, logger.error):
    emit("event", field=1)
"""


class TestWithoutConfiguration:
    @pytest.mark.process
    def test_warnings_and_errors_are_a_line_each_unless_an_application_wants_none(self) -> None:
        script = f"""
import logging
for silenced in (logging.getLogger("gaia"), logging.getLogger()):
    silenced.addHandler(handler := logging.NullHandler())
    exec({EACH_LEVEL!r})
    silenced.removeHandler(handler)
logging.lastResort.stream.write("now\\n")
exec({EACH_LEVEL!r})
"""
        stdout, stderr = run(script)
        assert stdout == b""
        assert stderr.splitlines() == [b"now", b"event field=1", b"event field=1"]

    @pytest.mark.process
    def test_nothing_is_ever_written_on_stdout_which_belongs_to_protocols(self) -> None:
        script = """
from gaia.runtime import log
log.configure(level=0)
log.get_logger("gaia.test").error("event", field=1)
log.configure(level=0, json=True)
log.get_logger("gaia.test").error("event", field=1)
"""
        stdout, stderr = run(script)
        assert stdout == b""
        assert stderr.count(b"\n") == 2

    @pytest.mark.process
    def test_what_is_not_logged_loads_nothing(self) -> None:
        script = """
import sys
from gaia.runtime.log import get_logger
get_logger("gaia.test").debug("event", field=1)
print("structlog" in sys.modules, "opentelemetry" in sys.modules)
"""
        assert run(script)[0].split() == [b"False", b"False"]

    @pytest.mark.process
    def test_an_engine_thread_logs_as_the_applications_threads_do(self) -> None:
        script = """
import logging, sys
from gaia.runtime import log
from gaia.runtime.threads import EngineThread

class Owner:
    def redact(self, text):
        return text.replace("s3cret", "***")

owner, records = Owner(), []
log.mask_secrets_of(owner)
handler = logging.Handler()
handler.emit = records.append
logging.getLogger("gaia").addHandler(handler)

def supervise():
    log.get_logger("gaia.test").warning("server_lost", reason="s3cret")

thread = EngineThread(supervise, "supervisor")
thread.start()
thread.join()
log.flush()
supervise()
first, second = records
print(first.getMessage() == second.getMessage() == "server_lost reason='***'")
print(first.event_fields == second.event_fields, first.funcName == second.funcName == "supervise")
"""
        assert run(script)[0].split() == [b"True", b"True", b"True"]

    def test_below_the_level_nothing_is_emitted(self, output: io.StringIO) -> None:
        log.configure(level=logging.WARNING, stream=output)
        logger = get_logger("gaia.test")
        logger.info("quiet")
        logger.warning("loud")
        assert "quiet" not in output.getvalue()
        assert "loud" in output.getvalue()
        assert logger.is_enabled_for(logging.WARNING)
        assert not logger.is_enabled_for(logging.INFO)


class TestText:
    def test_an_event_is_a_line_with_its_fields_and_a_time_with_a_zone(self, output: io.StringIO) -> None:
        get_logger("gaia.test").info("server_ready", server="time", generation=2)
        line = output.getvalue()
        assert line.endswith(" INFO    server_ready server='time' generation=2\n")
        assert dt.datetime.fromisoformat(line.split()[0]).utcoffset() is not None

    @pytest.mark.parametrize("text", ["100 %s %d %", "two\nlines", "{braces}"])
    def test_whatever_is_in_a_field_it_stays_one_line(self, output: io.StringIO, text: str) -> None:
        get_logger("gaia.test").info("event", text=text)
        assert output.getvalue().endswith(f" event text={text!r}\n")
        assert output.getvalue().count("\n") == 1

    def test_configuring_again_replaces_what_was_configured(self, output: io.StringIO) -> None:
        log.configure(stream=(other := io.StringIO()))
        get_logger("gaia.test").info("once")
        assert (output.getvalue(), other.getvalue().count("once")) == ("", 1)


@pytest.mark.usefixtures("as_json")
class TestJson:
    def test_no_terminal_acts_on_it(self, output: io.StringIO) -> None:
        get_logger("gaia.test").info("server_log", text="\x1b[2J \x9b31m \u202e ü")
        assert output.getvalue().strip().isascii()
        assert output.getvalue().strip().isprintable()
        assert events(output)[0]["text"] == "\x1b[2J \x9b31m \u202e ü"

    def test_an_event_is_an_object_with_its_fields(self, output: io.StringIO) -> None:
        get_logger("gaia.test").warning("server_lost", server="time", exit_code=None)
        (event,) = events(output)
        timestamp = event.pop("timestamp")
        assert dt.datetime.fromisoformat(timestamp).utcoffset() is not None
        assert event == {
            "event": "server_lost",
            "level": "warning",
            "logger": "gaia.test",
            "server": "time",
            "exit_code": None,
        }

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (2**70, 2**70),
            ("\ud800", "\ud800"),
            ({1, 2}, "{1, 2}"),
            (ValueError("no"), "no"),
            ("two\nlines", "two\nlines"),
        ],
    )
    def test_whatever_is_in_a_field_can_be_shown(self, output: io.StringIO, value: Any, shown: Any) -> None:
        get_logger("gaia.test").info("event", value=value)
        assert events(output)[0]["value"] == shown

    def test_a_field_does_not_pretend_to_be_the_events_own(self, output: io.StringIO) -> None:
        get_logger("gaia.test").info("event", level="critical", logger="other", timestamp="never")
        (event,) = events(output)
        assert (event["level"], event["logger"]) == ("info", "gaia.test")
        assert event["timestamp"] != "never"

    def test_records_of_plain_logging_have_their_message_and_exception(self, output: io.StringIO) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("gaia.plugin").exception("plain %s", "message")
        (event,) = events(output)
        assert event["event"] == "plain message"
        assert event["exception"].endswith("ValueError: no")


@pytest.mark.usefixtures("as_json")
class TestContext:
    def test_within_a_span_an_event_carries_its_ids(self, output: io.StringIO) -> None:
        context = trace.SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False)
        logger = get_logger("gaia.test")
        with trace.use_span(trace.NonRecordingSpan(context)):
            logger.info("inside")
        logger.info("outside")
        inside, outside = events(output)
        assert (inside["trace_id"], inside["span_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")
        assert "trace_id" not in outside

    def test_what_the_application_bound_is_among_the_fields(self, output: io.StringIO) -> None:
        with structlog.contextvars.bound_contextvars(request="r-1", size=0):
            get_logger("gaia.test").info("event", size=5)
        assert list(events(output)[0].items())[:3] == [("size", 5), ("event", "event"), ("request", "r-1")]


def test_an_event_leaves_nothing_for_the_garbage_collector(output: io.StringIO) -> None:
    logger = get_logger("gaia.test")
    logger.info("first")
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            logger.info("event")
        assert gc.collect() < 100
    finally:
        gc.enable()


@pytest.mark.process
class TestDebug:
    def test_it_shows_debug_events_on_standard_error(self) -> None:
        script = """
from gaia.runtime import log
log.enable_debug()
log.get_logger("gaia.test").debug("detail", number=1)
"""
        stdout, stderr = run(script)
        assert stdout == b""
        assert stderr.endswith(b"DEBUG   detail number=1\n" if sys.platform != "win32" else b"detail number=1\r\n")

    @pytest.mark.parametrize("configured", ["logging.getLogger('gaia')", "logging.getLogger()"])
    def test_it_leaves_the_output_to_an_application_that_has_configured_it(self, configured: str) -> None:
        script = f"""
import io, logging
from gaia.runtime import log
stream = io.StringIO()
{configured}.addHandler(logging.StreamHandler(stream))
log.enable_debug()
log.get_logger("gaia.test").debug("detail", number=1)
print(stream.getvalue().strip())
"""
        stdout, stderr = run(script)
        assert stdout.strip() == b"detail number=1"
        assert stderr == b""


class Owner:
    """Has one secret."""

    def redact(self, text: str) -> str:
        return text.replace("hunter2", "***")


class TestSecrets:
    def test_known_ones_are_masked_in_whatever_anybody_logs(self, output: io.StringIO) -> None:
        owner = Owner()
        log.mask_secrets_of(owner)
        log.configure(stream=output, json=True)
        get_logger("gaia.test").info(
            "event", text="it is hunter2", deep={"list": ["hunter2", 1]}, pair=("hunter2", None)
        )
        (event,) = events(output)
        assert "hunter2" not in output.getvalue()
        assert event["text"] == "it is ***"
        assert event["deep"] == {"list": ["***", 1]}
        assert event["pair"] == ["***", None]

    def test_so_are_they_in_records_of_a_library_that_logs_what_it_sends(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = Owner()
        log.mask_secrets_of(owner)
        library = logging.getLogger("some_http_library")
        monkeypatch.setattr(library, "filters", [])
        for _ in range(2):
            log.mask_records_of(library.name)
        library.warning("GET %s: %d", "https://example.com/hunter2", 200)
        assert [record.getMessage() for record in caplog.records] == ["GET https://example.com/***: 200"]
        assert len(library.filters) == 1

    def test_they_are_forgotten_with_their_owner(self, output: io.StringIO) -> None:
        owner = Owner()
        log.mask_secrets_of(owner)
        del owner
        gc.collect()
        get_logger("gaia.test").info("event", text="hunter2")
        assert "hunter2" in output.getvalue()

    def test_those_of_a_running_server_are_masked(self, fault_server: Any, output: io.StringIO) -> None:
        with MCPClient.from_config("fault", {**fault_server(), "env": {"SOME_TOKEN": "hunter2-hunter2"}}):
            get_logger("gaia.test").info("event", text="hunter2-hunter2")
        assert "hunter2" not in output.getvalue()


class TestTraceIds:
    """Every line of a start, whichever thread writes it, carries the ids of its trace."""

    def test_lines_of_a_start_belong_to_its_trace(
        self, fault_server: Any, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tracing = Tracing.installed(monkeypatch)
        log.configure(stream=output, json=True, level=logging.DEBUG)
        with MCPClient.from_config("fault", fault_server(stderr_flood=80)) as client:
            tracing.wait_for("gaia.mcp.start fault")
            client.call_tool("echo", {"text": "hi"})
        by_event = {event["event"]: event for event in events(output)}
        start, call = tracing.only("gaia.mcp.start fault").context, tracing.call.context
        assert start is not None
        assert call is not None
        for name in ("server_started", "server_ready", "server_stderr"):
            assert by_event[name]["trace_id"] == f"{start.trace_id:032x}", name
        assert by_event["server_stderr"]["server"] == "fault"
        assert by_event["tool_called"]["trace_id"] == f"{call.trace_id:032x}"
        assert by_event["tool_called"]["span_id"] == f"{call.span_id:016x}"


class TestEngineThreads:
    """Events of gaia's own threads, on which no handler runs."""

    @pytest.fixture
    def records(self) -> Iterator[list[logging.LogRecord]]:
        records: list[logging.LogRecord] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                record.handled_by = threading.current_thread().name
                record.context = NOTE.get()
                records.append(record)

        logging.getLogger("gaia").addHandler(Handler())
        return records

    def test_the_record_is_as_if_it_had_been_handled_there(
        self, records: list[logging.LogRecord], tracing: Tracing
    ) -> None:
        def emit() -> None:
            NOTE.set("a context variable")
            structlog.contextvars.bind_contextvars(tenant="t-1")
            with tracing.provider.get_tracer("test").start_as_current_span("span"):
                get_logger("gaia.test").warning("event", field=1)

        thread = on_engine(emit)
        assert log.flush(PATIENCE)
        (record,) = records
        assert record.handled_by == "gaia-log"  # type: ignore[attr-defined]
        assert record.context == "a context variable"  # type: ignore[attr-defined]
        assert (record.threadName, record.thread) == ("test-engine", thread.ident)
        assert (record.funcName, record.filename) == ("emit", "test_log.py")
        assert "tenant='t-1'" in record.getMessage()
        assert "span_id" in record.event_fields  # type: ignore[attr-defined]

    def test_on_other_threads_handlers_run_at_once(self, records: list[logging.LogRecord]) -> None:
        get_logger("gaia.test").warning("event")
        assert [record.handled_by for record in records] == ["MainThread"]  # type: ignore[attr-defined]

    def test_a_handler_that_raises_costs_nothing_and_is_told_as_logging_does(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class Handler(logging.Handler):
            def handle(self, record: logging.LogRecord) -> NoReturn:
                raise ZeroDivisionError(record.getMessage())

        logging.getLogger("gaia").addHandler(Handler())
        get_logger("gaia.test").warning("event")
        on_engine(lambda: get_logger("gaia.test").warning("other"))
        log.flush(PATIENCE)
        assert "ZeroDivisionError: event" in (errors := capsys.readouterr().err)
        assert "ZeroDivisionError: other" in errors

    def test_a_flood_is_cut_and_that_is_said(
        self, records: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handover_module, "_MAX_TASKS", 3)
        entered, may_go_on = threading.Event(), threading.Event()

        def emit() -> None:
            logger = get_logger("gaia.test")
            log._handlers.post(lambda: (entered.set(), may_go_on.wait(PATIENCE)))
            assert entered.wait(PATIENCE)
            for number in range(10):
                logger.warning("event", number=number)

        on_engine(emit)
        may_go_on.set()
        assert log.flush(PATIENCE)
        messages = [record.getMessage() for record in records]
        assert messages == ["event number=0", "event number=1", "log_events_dropped count=8"]

    def test_secrets_are_masked_when_the_event_happens(self, records: list[logging.LogRecord]) -> None:
        owner = Owner()
        log.mask_secrets_of(owner)
        exception = "Traceback: hunter2"
        on_engine(lambda: get_logger("gaia.test").warning("event", text="hunter2", exception=exception))
        del owner
        assert log.flush(PATIENCE)
        (record,) = records
        assert "hunter2" not in logging.Formatter().format(record)
        assert logging.Formatter().format(record).endswith("Traceback: ***")

    @pytest.mark.process
    def test_a_program_that_ends_at_once_shows_them(self) -> None:
        script = """
from gaia.runtime import log
from gaia.runtime.threads import EngineThread
log.configure(json=True)
thread = EngineThread(lambda: [log.get_logger("gaia.test").error("event", field=n) for n in range(100)], "test")
thread.start()
thread.join()
"""
        assert run(script)[1].count(b"\n") == 100


def test_a_traceback_has_nothing_that_a_terminal_acts_on() -> None:
    try:
        raise ValueError("\x1b[31mred")
    except ValueError as error:
        trace = traceback_text(error)
    assert trace.endswith("ValueError: red")
    assert "Traceback" in trace


def test_an_exception_is_shown_as_python_does_or_named() -> None:
    assert exception_text(ValueError("no")) == "ValueError('no')"
    assert "Unspeakable" in exception_text(Unspeakable())
    assert "Unspeakable" in traceback_text(Unspeakable())
