"""An MCP server that misbehaves as its scenario says: what tests of the client run as a subprocess.

    python -I -S fault_server.py '{"faults": [{"tool": "echo", "nth": [2], "crash": "mid_line"}]}'
    python -I -S fault_server.py @scenario.json

A scenario is a `Scenario` as JSON; ``{}`` is a server without any fault. What a field does stands under it, and a key
that no field has is an error. What concerns the process (start, signals, end of input, grandchildren) are fields of
`Scenario`; what happens at a message of the client is a `Fault`, so that all faults can be limited to a method, a tool
or the nth request, and combined.

Tools that are always there:

=================  ====================================================================================================
``echo``           returns ``text``; has no annotations, so it is not safe to repeat
``sleep``          answers after ``seconds``; not safe to repeat either
``pid``            the process id
``start``          how many processes have started with this ``state_file``, this one included; 1 without
``env``            the whole environment, as JSON
``received``       everything that the client has sent so far, as a JSON list
``children``       the process ids of the grandchildren, as a JSON list
``client_answers`` waits until the client has answered all of ``server_requests``, returns its answers as a JSON list
=================  ====================================================================================================

The standard library only and all in one file: tests run it with ``-I -S``, which starts fast and finds nothing else.
It is started more than a thousand times in a run of all tests, so it imports little: no dataclasses, no pathlib.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeAlias

    Json: TypeAlias = dict[str, Any]

MOMENTS = ("before_answer", "mid_line", "after_answer")
CURSORS = ("opaque", "empty_string", "repeating", "endless")
ERAS = ("handshake", "stateless", "both")
CHILDREN = ("same_group", "own_session", "daemon", "escaped")

LIFETIME = 300.0
"""Seconds after which a server or grandchild that nobody stops ends by itself: a failed test leaves nothing behind."""

CLIENT_ANSWER_TIMEOUT = 120.0
"""Seconds that ``client_answers`` waits."""


# Scenarios ------------------------------------------------------------------------------------------------------------


class ScenarioError(ValueError):
    """The scenario has a key or a value that it cannot have."""


class Record:
    """A class whose fields are its annotations, each with a default. Nobody changes them or what is in them."""

    def __init__(self, **values: Any) -> None:
        for name in self.fields():
            setattr(self, name, values.get(name, getattr(type(self), name)))
        self.check()

    @classmethod
    def fields(cls) -> list[str]:
        """The names of the fields."""
        return list(cls.__annotations__)

    def check(self) -> None:
        """Raise `ScenarioError` for values that cannot be."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # some of the fields are lists


class ExitAtStart(Record):
    """Exits before reading anything."""

    code: int = 1
    stderr: str = ""
    """Written to stderr first."""
    signal: int | None = None
    """Dies of this signal instead of exiting."""
    delay: float = 0.0
    """Seconds before."""


class Junk(Record):
    """Something that is no answer, on a line of its own. Exactly one of the first four fields is given."""

    text: str | None = None
    hex: str | None = None
    """Bytes, in hexadecimal: ``"ff fe"`` is not UTF-8."""
    json: Any = None
    """Any JSON but null, such as ``[1, 2]`` or ``{"jsonrpc": "2.0", "id": 99, "result": {}}``."""
    size: int | None = None
    """So many bytes of ``x``."""
    newline: bool = True
    """Ended by a newline; without it, the answer that follows is glued to the junk."""

    def check(self) -> None:
        given = [value for value in (self.text, self.hex, self.json, self.size) if value is not None]
        if len(given) != 1:
            raise ScenarioError("junk needs exactly one of text, hex, json and size")

    def encode(self) -> bytes:
        """The bytes to write."""
        if self.text is not None:
            body = self.text.encode("utf-8", "surrogateescape")
        elif self.hex is not None:
            body = bytes.fromhex(self.hex)
        elif self.size is not None:
            body = b"x" * self.size
        else:
            body = json.dumps(self.json).encode()
        return body + b"\n" * self.newline


class Fault(Record):
    """What happens at some messages of the client. Of the faults that fit a message, the first one applies.

    The effects can be combined and take place in the order of the fields.
    """

    # Which messages: requests, or notifications such as notifications/initialized (those have no answer, of course).
    on: str = "tools/call"
    """The method; ``"*"`` is any."""
    tool: str | None = None
    """Only calls of this tool."""
    nth: tuple[int, ...] = ()
    """Only these of the messages that fit `on` and `tool`, counted from 1 in each process. Empty: all of them."""
    after: int = 0
    """Not the first so many of them."""

    # Before the answer
    delay: float = 0.0
    """Seconds to wait. Other messages are handled meanwhile."""
    stderr_flood: int = 0
    """Bytes to write to stderr, in lines."""
    notifications: tuple[Json, ...] = ()
    """Sent as they are, with ``"jsonrpc"`` added: ``{"method": "notifications/message", "params": {...}}``."""
    progress: tuple[Json, ...] = ()
    """Params of progress notifications; the request's token is added: ``{"progress": 1, "total": 3}``."""
    interval: float = 0.0
    """Seconds before each of `progress`."""
    server_requests: tuple[Json, ...] = ()
    """Requests to the client, sent without waiting for the answers: ``{"method": "ping"}``. See ``client_answers``."""
    change_tools: tuple[Json, ...] | None = None
    """Replaces `Scenario.tools`, and says so with notifications/tools/list_changed."""
    await_cancel: bool = False
    """Waits until the client cancels the request; an answer that comes then is late."""
    junk: tuple[Junk, ...] = ()
    """Written just before the answer, or without one if there is none."""

    # The answer
    hang: bool = False
    """There is none, ever."""
    freeze: bool = False
    """There is none, nor to anything later: the server reads, but is hung."""
    error: Json | None = None
    """It is this JSON-RPC error: ``{"code": -32603, "message": "..."}``."""
    result: Any = None
    """It is this result."""
    answer_id: str | int | None = None
    """It carries this id instead of the request's."""
    chunk_size: int | None = None
    """It is written in pieces of so many bytes."""
    pause: float = 0.0
    """Seconds between the pieces. Nothing else is written meanwhile."""
    twice: bool = False
    """It comes twice."""
    crash: str | None = None
    """The process ends: before the answer, when half of its line is written, or after it."""
    exit_code: int = 1
    """How it ends: 0 looks like the server's own decision."""
    signal: int | None = None
    """It ends by this signal instead."""

    # After the answer
    close_stdout: bool = False
    """Closes stdout and goes on reading."""
    stop_reading: bool = False
    """Reads nothing more, not even the end of input."""

    def check(self) -> None:
        _check_choice("crash", self.crash, MOMENTS)

    def fits(self, message: Json) -> bool:
        """Whether this is one of the messages that are counted."""
        params = message.get("params")
        tool = params.get("name") if isinstance(params, dict) else None
        return self.on in ("*", message.get("method")) and self.tool in (None, tool)

    def applies_to(self, occurrence: int) -> bool:
        """Whether the fault happens at this one of the messages that fit."""
        return occurrence > self.after and (not self.nth or occurrence in self.nth)


class Scenario(Record):
    """Everything that can be scripted."""

    # What the server says about itself
    era: str = "handshake"
    """Which protocol eras it speaks. With both, the first message decides for the life of the process."""
    supported_versions: tuple[str, ...] = ("2026-07-28",)
    """The revisions of the stateless era that it says it supports."""
    protocol_version: str | None = None
    """The revision it answers; by default the one that the client asked for."""
    capabilities: Json = {"tools": {"listChanged": True}}  # noqa: RUF012 - nobody changes it
    instructions: str | None = None
    tools: tuple[Json, ...] = ()
    """More tools, as ``tools/list`` shows them; ``name`` is enough, and a call of one returns its ``text``, or its name
    without one. An entry with the name of a tool that is always there is merged over it:
    ``{"name": "echo", "annotations": {...}}``."""
    only_tools: bool = False
    """Lists `tools` only. The tools that are always there can still be called."""
    page_size: int | None = None
    """``tools/list`` comes in pages of so many tools."""
    cursors: str = "opaque"
    """What leads to the next page: a plain cursor; an empty string to the second page, which is legal; always the
    same one, to the second page again and again; or a new one for ever, beyond the last tool."""
    line_ending: str = "\n"

    # What happens at the client's messages
    faults: tuple[Fault, ...] = ()
    reorder: int = 0
    """Holds the answers to ``tools/call`` back until there are so many, then writes them last first in one write."""

    # The process
    exit_at_start: ExitAtStart | None = None
    start_delay: float = 0.0
    """Seconds before reading anything."""
    stderr_flood: int = 0
    """Bytes to write to stderr before reading anything, in lines: more than a pipe holds blocks until they are read."""
    ignore_sigterm: bool = False
    """SIGTERM is recorded in `state_file` and survived."""
    ignore_eof: bool = False
    """Goes on after the end of input (for `LIFETIME` at most)."""
    child: str | None = None
    """Starts a grandchild that sleeps: in the server's process group, in a session of its own, or as a daemon, which
    has no parent any more."""
    child_keeps_pipes: bool = False
    """The grandchild holds the server's stdin, stdout and stderr open: their end does not come with the server's."""
    state_file: str | None = None
    """Absolute path of a file in which all processes of this server record what happens; `state_file` reads it."""
    by_start: dict[str, Json] = {}  # noqa: RUF012 - nobody changes it
    """What is different in the nth process: ``{"2": {"faults": []}}``. Needs `state_file`."""

    def check(self) -> None:
        _check_choice("era", self.era, ERAS)
        _check_choice("cursors", self.cursors, CURSORS)
        _check_choice("child", self.child, CHILDREN)
        if self.by_start and self.state_file is None:
            raise ScenarioError("by_start needs a state_file that counts the starts")
        for number, changes in self.by_start.items():
            if not number.isdecimal():
                raise ScenarioError(f"by_start: {number!r} is not the number of a start")
            _convert(Scenario, changes)

    @classmethod
    def from_json(cls, data: Any) -> Scenario:
        """Check and convert a scenario; raise `ScenarioError` for what cannot be in one."""
        return cls(**_convert(cls, data))

    def at_start(self, number: int) -> Scenario:
        """The scenario of the nth process."""
        return Scenario(**{**vars(self), **_convert(Scenario, self.by_start.get(str(number), {}))})


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ScenarioError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _convert(kind: type[Record], data: Any) -> Json:
    """Keyword arguments for the record `kind`; raises `ScenarioError` for keys that it does not have."""
    if not isinstance(data, dict):
        raise ScenarioError(f"{kind.__name__} must be an object, not {data!r}")
    known = set(kind.fields())
    if unknown := data.keys() - known:
        raise ScenarioError(f"{kind.__name__} has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
    converted: Json = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    if converted.get("exit_at_start") is not None:
        converted["exit_at_start"] = ExitAtStart(**_convert(ExitAtStart, converted["exit_at_start"]))
    if "faults" in converted:
        converted["faults"] = tuple(Fault(**_convert(Fault, fault)) for fault in converted["faults"])
    if "junk" in converted:
        converted["junk"] = tuple(Junk(**_convert(Junk, junk)) for junk in converted["junk"])
    return converted


# What is recorded -----------------------------------------------------------------------------------------------------


class Recorder:
    """Appends to the state file, if there is one; one write per event, so that processes do not mix their lines.

    What tests read from it is in `tests.servers.state_file`.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self.start = 1
        if path is not None:
            self._append({"event": "start", "pid": os.getpid()})
            with open(path) as lines:
                self.start = sum(line.startswith('{"event": "start"') for line in lines)

    def call(self, tool: Any, arguments: Any) -> None:
        self._append({"event": "call", "start": self.start, "tool": tool, "arguments": arguments})

    def child(self, pid: int) -> None:
        self._append({"event": "child", "pid": pid})

    def end(self, how: str) -> None:
        self._append({"event": how, "start": self.start})

    def _append(self, event: Json) -> None:
        if self._path is not None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                # A kill can cut a long line short. The next event does not continue it.
                os.write(descriptor, b"\n" + json.dumps(event).encode() + b"\n")
            finally:
                os.close(descriptor)


# The process ----------------------------------------------------------------------------------------------------------


def write_all(descriptor: int, data: bytes) -> None:
    """Write without Python's buffers: what is written is out, even if the process crashes on the next line."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def flood_stderr(size: int) -> None:
    line = b"e" * 79 + b"\n"
    write_all(2, (line * (size // len(line) + 1))[:size])


def end_process(exit_code: int, signal_number: int | None) -> NoReturn:
    if signal_number is not None:
        os.kill(os.getpid(), signal_number)
        time.sleep(LIFETIME)
    os._exit(exit_code)


def start_child(kind: str, *, keeps_pipes: bool) -> int:
    """Start a process that sleeps, and return its process id."""
    import subprocess

    sleeper = [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({LIFETIME})"]
    pipes: Json = {} if keeps_pipes else {"stdin": -3, "stdout": -3, "stderr": -3}
    if kind == "escaped":
        # Nothing of what it inherited tells whose it is, and it cannot be asked to end.
        sleeper[-1] = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {sleeper[-1]}"
        pipes["env"] = {}
    if kind not in ("daemon", "escaped"):
        return subprocess.Popen(sleeper, start_new_session=kind == "own_session", **pipes).pid
    # The classic way: a process in between starts it and ends, and the grandchild is left to init.
    read_end, write_end = os.pipe()
    between = (
        "import os, subprocess;"
        f"pid = subprocess.Popen({sleeper!r}, start_new_session=True, **{pipes!r}).pid;"
        f"os.write({write_end}, str(pid).encode())"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", between], check=True, pass_fds=[write_end])
    os.close(write_end)
    pid = int(os.read(read_end, 32))
    os.close(read_end)
    return pid


BUILT_IN_TOOLS: tuple[Json, ...] = (
    {
        "name": "echo",
        "description": "Return the text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "sleep",
        "description": "Answer after some time.",
        "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
    },
    *(
        {
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        }
        for name, description in (
            ("pid", "The process id."),
            ("start", "The number of this start."),
            ("env", "The environment."),
            ("received", "What the client has sent."),
            ("children", "The process ids of grandchildren."),
            ("client_answers", "What the client answered to requests of this server."),
        )
    ),
)


class FaultServer:
    """One process of the server; the main thread reads, and what has to wait does so in a thread of its own."""

    def __init__(self, scenario: Scenario, recorder: Recorder) -> None:
        self._scenario = scenario
        self._recorder = recorder
        self._tools = scenario.tools
        self._occurrences = [0] * len(scenario.faults)
        self._received: list[Any] = []
        self._children: list[int] = []
        self._output_lock = threading.Lock()
        self._held: list[bytes] = []
        self._cancelled: dict[str | int, threading.Event] = {}
        self._asked: list[str] = []
        self._client_answers: dict[str, Json] = {}
        self._client_answered = threading.Condition()
        self._era = scenario.era
        self._listening: list[str | int] = []
        """The ids of the subscriptions that are open."""
        self._frozen = False
        self._stopped_reading = False

    def run(self) -> None:
        """Be the server until the end of input."""
        scenario = self._scenario
        if scenario.ignore_sigterm:
            signal.signal(signal.SIGTERM, lambda _number, _frame: self._recorder.end("sigterm"))
        if (exit_at_start := scenario.exit_at_start) is not None:
            time.sleep(exit_at_start.delay)
            write_all(2, exit_at_start.stderr.encode())
            end_process(exit_at_start.code, exit_at_start.signal)
        if scenario.child is not None:
            self._children.append(start_child(scenario.child, keeps_pipes=scenario.child_keeps_pipes))
            self._recorder.child(self._children[-1])
        time.sleep(scenario.start_delay)
        flood_stderr(scenario.stderr_flood)
        self._read_until_eof()
        self._recorder.end("eof")
        if scenario.ignore_eof:
            time.sleep(LIFETIME)

    def _read_until_eof(self) -> None:
        # One loop, and the descriptor closed nowhere: a writer that finds the pipe full stays blocked.
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                self._received.append({"invalid": line.decode("utf-8", "backslashreplace")})
                continue
            self._received.append(message)
            if isinstance(message, dict):
                self._handle(message)
            if self._stopped_reading:
                time.sleep(LIFETIME)

    def _handle(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            self._keep_client_answer(message)
            return
        if method == "tools/call":
            self._recorder.call(message["params"].get("name"), message["params"].get("arguments"))
        if method == "notifications/cancelled":
            self._cancelled.setdefault(message["params"]["requestId"], threading.Event()).set()
            self._listening = [one for one in self._listening if one != message["params"]["requestId"]]
        fault = self._fault_for(message)
        if self._must_wait(message, fault):
            threading.Thread(target=self._react, args=(message, fault), daemon=True).start()
        else:
            self._react(message, fault)

    def _fault_for(self, message: Json) -> Fault:
        chosen = None
        for index, fault in enumerate(self._scenario.faults):
            if fault.fits(message):
                self._occurrences[index] += 1
                if chosen is None and fault.applies_to(self._occurrences[index]):
                    chosen = fault
        return chosen or Fault()

    @staticmethod
    def _must_wait(message: Json, fault: Fault) -> bool:
        tool = message["params"].get("name") if message["method"] == "tools/call" else None
        return tool in ("sleep", "client_answers") or bool(fault.delay or fault.interval or fault.await_cancel)

    # Faults

    def _react(self, message: Json, fault: Fault) -> None:
        time.sleep(fault.delay)
        flood_stderr(fault.stderr_flood)
        for notification in fault.notifications:
            self._send({"jsonrpc": "2.0", **notification})
        self._send_progress(message, fault)
        for request in fault.server_requests:
            self._ask_client(request)
        if fault.change_tools is not None:
            self._tools = fault.change_tools
            self._announce("notifications/tools/list_changed")
        if fault.await_cancel:
            self._cancelled.setdefault(message["id"], threading.Event()).wait(LIFETIME)
        for junk in fault.junk:
            self._write(junk.encode())
        self._frozen = self._frozen or fault.freeze
        self._answer(message, fault)
        if fault.close_stdout:
            self._close_stdout()
        self._stopped_reading = self._stopped_reading or fault.stop_reading

    def _announce(self, method: str) -> None:
        """To all; in the stateless era, to those who listen."""
        if self._era == "handshake":
            self._send({"jsonrpc": "2.0", "method": method})
        for identifier in self._listening:
            meta = {"io.modelcontextprotocol/subscriptionId": identifier}
            self._send({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}})

    def _send_progress(self, message: Json, fault: Fault) -> None:
        token = (message.get("params") or {}).get("_meta", {}).get("progressToken")
        for progress in fault.progress if token is not None else ():
            time.sleep(fault.interval)
            params = {"progressToken": token, **progress}
            self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _answer(self, message: Json, fault: Fault) -> None:
        if fault.crash == "before_answer":
            end_process(fault.exit_code, fault.signal)
        if self._era == "stateless" and message["method"] == "subscriptions/listen" and fault == Fault():
            self._listen(message)
        elif "id" in message and not fault.hang and not self._frozen:
            line = self._encode(self._answer_to(message, fault))
            if fault.crash == "mid_line":
                self._write(line[: len(line) // 2])
                end_process(fault.exit_code, fault.signal)
            self._write_answer(message["method"], line * (1 + fault.twice), fault)
        if fault.crash is not None:
            end_process(fault.exit_code, fault.signal)

    def _listen(self, message: Json) -> None:
        """Answered only when it ends."""
        self._listening.append(message["id"])
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        params = {"_meta": meta, "notifications": message["params"]["notifications"]}
        self._send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})

    def _write_answer(self, method: str, data: bytes, fault: Fault) -> None:
        if method == "tools/call" and self._scenario.reorder:
            with self._output_lock:
                self._held.append(data)
                if len(self._held) < self._scenario.reorder:
                    return
                data = b"".join(reversed(self._held))
                self._held.clear()
        size = fault.chunk_size or len(data)
        with self._output_lock:
            for start in range(0, len(data), size):
                time.sleep(fault.pause if start else 0.0)
                write_all(1, data[start : start + size])

    @staticmethod
    def _close_stdout() -> None:
        # Descriptor 1 stays taken: a file that is opened later must not become standard output.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    # Requests to the client

    def _ask_client(self, request: Json) -> None:
        request_id = f"server-{len(self._asked) + 1}"
        self._asked.append(request_id)
        self._send({"jsonrpc": "2.0", "id": request_id, **request})

    def _keep_client_answer(self, message: Json) -> None:
        with self._client_answered:
            self._client_answers[message["id"]] = message
            self._client_answered.notify_all()

    def _all_client_answers(self) -> list[Json | None]:
        with self._client_answered:
            self._client_answered.wait_for(
                lambda: self._client_answers.keys() >= set(self._asked), CLIENT_ANSWER_TIMEOUT
            )
            return [self._client_answers.get(request_id) for request_id in self._asked]

    # Answers

    def _answer_to(self, message: Json, fault: Fault) -> Json:
        answer: Json = {"jsonrpc": "2.0", "id": message["id"] if fault.answer_id is None else fault.answer_id}
        if fault.error is not None:
            return answer | {"error": fault.error}
        if fault.result is not None:
            return answer | {"result": fault.result}
        method, params = message["method"], message.get("params") or {}
        answer |= self._wrong_era(method, params) or self._outcome(method, params)
        if self._era == "stateless" and "result" in answer:
            answer["result"].setdefault("resultType", "complete")
        return answer

    def _wrong_era(self, method: str, params: Json) -> Json | None:
        """The error for a request of the era that this server does not speak, or no longer."""
        revision = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
        if self._era == "both":
            self._era = "handshake" if revision is None else "stateless"
        if self._era == "handshake":
            return None
        if method == "initialize" or revision not in self._scenario.supported_versions:
            data = {"supported": list(self._scenario.supported_versions), "requested": revision}
            return {"error": {"code": -32022, "message": "Unsupported protocol version", "data": data}}
        if "io.modelcontextprotocol/clientCapabilities" not in params["_meta"]:
            return {"error": {"code": -32602, "message": "the request has no client capabilities"}}
        return None

    def _outcome(self, method: str, params: Json) -> Json:
        if method == "server/discover" and self._era == "stateless":
            return {"result": self._discovery()}
        if method == "initialize":
            return {"result": self._handshake(params)}
        if method == "ping" and self._era == "handshake":
            return {"result": {}}
        if method == "tools/list":
            return {"result": self._page_of_tools(params)}
        if method == "tools/call":
            return self._call(params.get("name"), params.get("arguments") or {})
        return {"error": {"code": -32601, "message": f"unknown method {method!r}"}}

    def _handshake(self, params: Json) -> Json:
        scenario = self._scenario
        instructions = {} if scenario.instructions is None else {"instructions": scenario.instructions}
        return {
            "protocolVersion": scenario.protocol_version or params.get("protocolVersion"),
            "capabilities": scenario.capabilities,
            "serverInfo": {"name": "fault-server", "version": "1"},
            **instructions,
        }

    def _discovery(self) -> Json:
        scenario = self._scenario
        instructions = {} if scenario.instructions is None else {"instructions": scenario.instructions}
        return {
            "supportedVersions": list(scenario.supported_versions),
            "capabilities": scenario.capabilities,
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fault-server", "version": "1"}},
            **instructions,
        }

    def _all_tools(self) -> list[Json]:
        tools = {} if self._scenario.only_tools else {tool["name"]: tool for tool in BUILT_IN_TOOLS}
        for tool in self._tools:
            plain = {"description": "A scripted tool.", "inputSchema": {"type": "object"}}
            tools[tool["name"]] = {**tools.get(tool["name"], plain), **tool}
        return list(tools.values())

    def _page_of_tools(self, params: Json) -> Json:
        tools, size, cursors = self._all_tools(), self._scenario.page_size, self._scenario.cursors
        if size is None:
            return {"tools": tools}
        start = self._page_start(params.get("cursor"), size)
        page: Json = {"tools": tools[start : start + size]}
        following = start + size
        if cursors == "endless" or (cursors == "repeating" and following >= size) or following < len(tools):
            page["nextCursor"] = self._cursor_to(following, size)
        return page

    def _page_start(self, cursor: str | None, size: int) -> int:
        if cursor is None:
            return 0
        return size if cursor in ("", "again") else int(cursor)

    def _cursor_to(self, start: int, size: int) -> str:
        if self._scenario.cursors == "repeating":
            return "again"
        return "" if self._scenario.cursors == "empty_string" and start == size else str(start)

    def _call(self, tool: Any, arguments: Json) -> Json:
        if tool not in {listed["name"] for listed in (*BUILT_IN_TOOLS, *self._tools)}:
            return {"error": {"code": -32602, "message": f"unknown tool {tool!r}"}}
        return {"result": {"content": [{"type": "text", "text": self._text_of(tool, arguments)}]}}

    def _text_of(self, tool: str, arguments: Json) -> str:
        if tool == "echo":
            return str(arguments.get("text"))
        if tool == "sleep":
            time.sleep(arguments["seconds"])
            return f"slept {arguments['seconds']} s"
        state: dict[str, Any] = {
            "pid": os.getpid,
            "start": lambda: self._recorder.start,
            "env": lambda: dict(os.environ),
            "received": lambda: self._received,
            "children": lambda: self._children,
            "client_answers": self._all_client_answers,
        }
        return json.dumps(state[tool]()) if tool in state else str(arguments.get("text", tool))

    # Output

    def _encode(self, message: Json) -> bytes:
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + self._scenario.line_ending.encode()

    def _send(self, message: Json) -> None:
        if not self._frozen:
            self._write(self._encode(message))

    def _write(self, data: bytes) -> None:
        with self._output_lock:
            write_all(1, data)


def main() -> int:
    """Run the scenario of the command line."""
    source = sys.argv[1] if len(sys.argv) > 1 else "{}"
    text = source
    if source.startswith("@"):
        with open(source[1:]) as file:
            text = file.read()
    try:
        scenario = Scenario.from_json(json.loads(text))
    except ValueError as error:
        print(f"bad scenario: {error}", file=sys.stderr)
        return 2
    recorder = Recorder(scenario.state_file)
    try:  # noqa: SIM105 - without contextlib it starts faster
        FaultServer(scenario.at_start(recorder.start), recorder).run()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # The client is gone: no reason for a traceback.
    return 0


if __name__ == "__main__":
    sys.exit(main())
