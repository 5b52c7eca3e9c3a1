"""A small, real MCP server over stdio: ``python -m gaia.mcp.demo_server``.

The demo, the documentation and the tests need a server that is there on every machine and starts in no time, so this
one uses the standard library only and imports nothing else of this package. It also runs as a plain file:
``python -I path/to/demo_server.py``.

It speaks the revisions that open with ``initialize`` (2024-11-05 to 2025-11-25). Tool calls run concurrently, one
thread each; everything else is answered by the thread that reads standard input. Standard output carries JSON-RPC and
nothing else. Some tools exist to show what a supervisor has to survive: ``sleep`` is slow and can be cancelled,
``fail`` fails, ``crash`` takes the process down, ``counter`` loses its state with it, and ``grow`` changes the list of
tools.
"""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]

VERSION = "1.0.0"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Oldest to newest; a client that asks for another one is offered the newest."""

BATCHING_REVISION = "2025-03-26"
"""The one revision in which several messages may share a line."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424's severities, in rising order."""

PROGRESS_INTERVAL = 0.1
"""Seconds between two progress notifications of ``sleep``."""

GRACE_AT_EOF = 0.5
"""Seconds that running calls get to write their answers after the end of input; sleeping ones are woken at once."""


class RpcError(Exception):
    """An answer of the ``error`` kind; `data` is left out of it when None."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Call:
    """One running ``tools/call``: what its tool may do besides returning a result."""

    def __init__(self, server: "DemoServer", request_id: str | int, progress_token: str | int | None) -> None:
        self.server = server
        self.request_id = request_id
        self.interrupted = threading.Event()
        """Set when the client cancelled the call or went away."""
        self._progress_token = progress_token

    def report_progress(self, progress: float, total: float) -> None:
        """Tell the client how far the call is, if the client asked to be told."""
        if self._progress_token is not None and not self.interrupted.is_set():
            self.server.notify(
                "notifications/progress",
                {"progressToken": self._progress_token, "progress": progress, "total": total},
            )


class Tool(NamedTuple):
    """What ``tools/list`` says about a tool, and the function behind it."""

    name: str
    title: str
    description: str
    properties: Json
    """JSON Schema of each argument; one without a ``default`` is required."""
    annotations: Json
    run: Callable[[Call, Json], Json | None]
    """Returns the result, or None when it was interrupted: then the call is not answered."""
    output_properties: Json | None = None

    def listing(self) -> Json:
        """The tool as it appears in ``tools/list``."""
        listing: Json = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _object_schema(self.properties),
            "annotations": {"title": self.title, "openWorldHint": False, **self.annotations},
        }
        if self.output_properties is not None:
            listing["outputSchema"] = _object_schema(self.output_properties)
        return listing


def _object_schema(properties: Json) -> Json:
    required = [name for name, schema in properties.items() if "default" not in schema]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# Arguments ------------------------------------------------------------------------------------------------------------


def check_arguments(properties: Json, arguments: Any) -> Json:
    """Return `arguments` with defaults filled in; raise `RpcError` naming the argument that does not fit."""
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "arguments must be an object")
    for name in arguments:
        if name not in properties:
            raise RpcError(INVALID_PARAMS, f"unexpected argument {name!r}")
    complete = {}
    for name, schema in properties.items():
        if name in arguments:
            _check_value(name, schema, arguments[name])
            complete[name] = arguments[name]
        elif "default" in schema:
            complete[name] = schema["default"]
        else:
            raise RpcError(INVALID_PARAMS, f"missing argument {name!r}")
    return complete


def _check_value(name: str, schema: Json, value: Any) -> None:
    if not _is_of_type(schema["type"], value):
        raise RpcError(INVALID_PARAMS, f"argument {name!r} must be of type {schema['type']}")
    if "enum" in schema and value not in schema["enum"]:
        raise RpcError(INVALID_PARAMS, f"argument {name!r} must be one of {', '.join(schema['enum'])}")
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise RpcError(INVALID_PARAMS, f"argument {name!r} must be from {schema['minimum']} to {schema['maximum']}")


def _is_of_type(json_type: str, value: Any) -> bool:
    if json_type == "string":
        return isinstance(value, str)
    # A Python bool is an int, a JSON boolean is not a number.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return json_type == "number" or isinstance(value, int)


# Tools ----------------------------------------------------------------------------------------------------------------


def _text(text: str, *, is_error: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _structured(value: Json) -> Json:
    # Clients older than 2025-06-18 do not know structuredContent: the text says the same.
    return {**_text(json.dumps(value)), "structuredContent": value}


def _add(_call: Call, arguments: Json) -> Json:
    try:
        total = arguments["a"] + arguments["b"]
        finite = math.isfinite(total)
    except OverflowError:
        finite = False
    # JSON has no word for infinity.
    return _structured({"sum": total}) if finite else _text("the sum is too large", is_error=True)


def _echo(_call: Call, arguments: Json) -> Json:
    return _text(arguments["text"])


def _sleep(call: Call, arguments: Json) -> Json | None:
    seconds = arguments["seconds"]
    started = time.monotonic()
    while (remaining := seconds - (time.monotonic() - started)) > 0:
        if call.interrupted.wait(min(remaining, PROGRESS_INTERVAL)):
            return None
        call.report_progress(min(seconds, round(time.monotonic() - started, 3)), seconds)
    return _text(f"slept {seconds} s")


def _fail(_call: Call, arguments: Json) -> Json:
    return _text(arguments["message"], is_error=True)


def _crash(_call: Call, arguments: Json) -> Json:
    # Not sys.exit: that ends only this thread, and a crash does not say goodbye.
    os._exit(arguments["exit_code"])


def _environment(_call: Call, _arguments: Json) -> Json:
    # Values may be secrets; which names arrived is what one wants to know about a server's environment.
    return _structured({"names": sorted(os.environ)})


def _counter(call: Call, _arguments: Json) -> Json:
    return _structured({"value": call.server.count()})


def _grow(call: Call, _arguments: Json) -> Json:
    return _text(f"added {call.server.add_grown_tool()}")


def _log(call: Call, arguments: Json) -> Json:
    sent = call.server.log(arguments["level"], arguments["text"])
    return _text("sent" if sent else "not sent: below the level that the client set")


_READ_ONLY: Json = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}
_ADDITIVE: Json = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
_DESTRUCTIVE: Json = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}

TOOLS = (
    Tool(
        "add",
        "Add",
        "Add two numbers.",
        {
            "a": {"type": "number", "description": "First summand"},
            "b": {"type": "number", "description": "Second summand"},
        },
        _READ_ONLY,
        _add,
        {"sum": {"type": "number"}},
    ),
    Tool(
        "echo",
        "Echo",
        "Return the text that was sent.",
        {"text": {"type": "string", "description": "What to return"}},
        _READ_ONLY,
        _echo,
    ),
    Tool(
        "sleep",
        "Sleep",
        "Answer after some time, reporting progress meanwhile; can be cancelled.",
        {"seconds": {"type": "number", "description": "How long to sleep", "minimum": 0, "maximum": 3600}},
        _READ_ONLY,
        _sleep,
    ),
    Tool(
        "fail",
        "Fail",
        "Fail as a tool: the result says isError.",
        {"message": {"type": "string", "description": "What to say", "default": "this tool always fails"}},
        _READ_ONLY,
        _fail,
    ),
    Tool(
        "crash",
        "Crash",
        "Exit at once, without an answer.",
        {
            "exit_code": {
                "type": "integer",
                "description": "Exit code of the process",
                "minimum": 0,
                "maximum": 255,
                "default": 1,
            }
        },
        _DESTRUCTIVE,
        _crash,
    ),
    Tool(
        "environment",
        "Environment",
        "List the names, not the values, of the server's environment variables.",
        {},
        _READ_ONLY,
        _environment,
        {"names": {"type": "array", "items": {"type": "string"}}},
    ),
    Tool(
        "counter",
        "Counter",
        "Count the calls of this tool since the process started: a restart begins again at 1.",
        {},
        _ADDITIVE,
        _counter,
        {"value": {"type": "integer"}},
    ),
    Tool(
        "grow",
        "Grow",
        "Add one more tool to this server and tell the client that the list changed.",
        {},
        _ADDITIVE,
        _grow,
    ),
    Tool(
        "log",
        "Log",
        "Send a log message to the client.",
        {
            "text": {"type": "string", "description": "What to log"},
            "level": {"type": "string", "description": "Severity", "enum": LOG_LEVELS, "default": "info"},
        },
        _ADDITIVE,
        _log,
    ),
)


def _grown_tool(number: int) -> Tool:
    name = f"grown_{number}"

    def run(_call: Call, _arguments: Json) -> Json:
        return _text(name)

    return Tool(name, f"Grown {number}", f"Tool number {number} that `grow` added.", {}, _READ_ONLY, run)


# Resources and prompts ------------------------------------------------------------------------------------------------

RESOURCES = {
    "demo://greeting": ("greeting", "text/plain", "Hello from the gaia demo server."),
    "demo://about": ("about", "text/markdown", "# Demo server\n\nA small MCP server for trying out a client.\n"),
}
"""URI → name, MIME type, text."""

GREETINGS = {"danish": "Hej", "english": "Hello", "french": "Bonjour", "german": "Hallo", "spanish": "Hola"}

PROMPT: Json = {
    "name": "greet",
    "title": "Greet",
    "description": "Ask for a greeting of somebody, in a language.",
    "arguments": [
        {"name": "name", "description": "Who is greeted", "required": True},
        {"name": "language", "description": "Language of the greeting; English by default", "required": False},
    ],
}


def _list_resources(_params: Json) -> Json:
    return {
        "resources": [
            {"uri": uri, "name": name, "mimeType": mime_type, "size": len(text.encode())}
            for uri, (name, mime_type, text) in RESOURCES.items()
        ]
    }


def _list_resource_templates(_params: Json) -> Json:
    return {"resourceTemplates": []}


def _read_resource(params: Json) -> Json:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "uri must be a string")
    if uri not in RESOURCES:
        raise RpcError(RESOURCE_NOT_FOUND, "resource not found", {"uri": uri})
    _name, mime_type, text = RESOURCES[uri]
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}


def _list_prompts(_params: Json) -> Json:
    return {"prompts": [PROMPT]}


def _get_prompt(params: Json) -> Json:
    if params.get("name") != PROMPT["name"]:
        raise RpcError(INVALID_PARAMS, f"unknown prompt {params.get('name')!r}")
    properties = {"name": {"type": "string"}, "language": {"type": "string", "default": "english"}}
    arguments = check_arguments(properties, params.get("arguments", {}))
    greeting = GREETINGS.get(arguments["language"].lower())
    if greeting is None:
        raise RpcError(INVALID_PARAMS, f"argument 'language' must be one of {', '.join(GREETINGS)}")
    text = f"Greet {arguments['name']}, beginning with {greeting!r}."
    return {
        "description": PROMPT["description"],
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _complete(params: Json) -> Json:
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        raise RpcError(INVALID_PARAMS, "ref and argument must be objects")
    if reference.get("type") != "ref/prompt" or reference.get("name") != PROMPT["name"]:
        raise RpcError(INVALID_PARAMS, "ref must be the prompt 'greet'")
    name, typed = argument.get("name"), argument.get("value")
    if name not in ("name", "language") or not isinstance(typed, str):
        raise RpcError(INVALID_PARAMS, "argument must have the name of an argument of the prompt and a string value")
    # Anybody can be greeted, so there is nothing to propose for the name.
    candidates = GREETINGS if name == "language" else {}
    values = [candidate for candidate in candidates if candidate.startswith(typed.lower())]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


# The server -----------------------------------------------------------------------------------------------------------


class DemoServer:
    """Reads JSON-RPC lines, answers them, and keeps the little state that the tools show."""

    def __init__(self, write: Callable[[bytes], None], page_size: int | None = None) -> None:
        self._write = write
        self._output_lock = threading.Lock()
        self._page_size = page_size
        self._revision: str | None = None
        self._log_level = "debug"
        self._state_lock = threading.Lock()
        self._tools = {tool.name: tool for tool in TOOLS}
        self._grown = 0
        self._counter = 0
        self._running: dict[str | int, Call] = {}
        self._threads: set[threading.Thread] = set()
        self._methods: dict[str, Callable[[Json], Json]] = {
            "initialize": self._initialize,
            "ping": lambda _params: {},
            "tools/list": self._list_tools,
            "resources/list": _list_resources,
            "resources/templates/list": _list_resource_templates,
            "resources/read": _read_resource,
            "prompts/list": _list_prompts,
            "prompts/get": _get_prompt,
            "completion/complete": _complete,
            "logging/setLevel": self._set_log_level,
        }

    # What tools may call, from any thread

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    def log(self, level: str, text: str) -> bool:
        """Send a log message, unless the client asked for graver ones only; say whether it was sent."""
        if LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return False
        self.notify("notifications/message", {"level": level, "logger": "demo", "data": text})
        return True

    def count(self) -> int:
        """Increment the counter and return its value."""
        with self._state_lock:
            self._counter += 1
            return self._counter

    def add_grown_tool(self) -> str:
        """Add a tool, announce that the list changed, and return the new tool's name."""
        with self._state_lock:
            self._grown += 1
            tool = _grown_tool(self._grown)
            # A new dict, so that a listing that is being made never sees a change.
            self._tools = {**self._tools, tool.name: tool}
        self.notify("notifications/tools/list_changed")
        return tool.name

    # Input, from the reading thread only

    def handle_line(self, line: bytes) -> None:
        """Handle one line of input; empty lines are ignored."""
        if not line.strip():
            return
        try:
            message = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            self._send_error(None, RpcError(PARSE_ERROR, f"parse error: {error}"))
            return
        if isinstance(message, list) and message and self._revision == BATCHING_REVISION:
            for part in message:
                self._handle_message(part)
        else:
            self._handle_message(message)

    def finish(self) -> None:
        """End the running calls: wake those that sleep, and let those that are about to answer do so."""
        with self._state_lock:
            calls, threads = list(self._running.values()), list(self._threads)
        for call in calls:
            call.interrupted.set()
        deadline = time.monotonic() + GRACE_AT_EOF
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _handle_message(self, message: Any) -> None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._send_error(None, RpcError(INVALID_REQUEST, "not a JSON-RPC 2.0 message"))
            return
        if "method" not in message and ("result" in message or "error" in message):
            return  # This server asks the client for nothing, so no answer can be meant for it.
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message:
            self._handle_notification(method, params)
        elif not _is_request_id(request_id := message["id"]):
            self._send_error(None, RpcError(INVALID_REQUEST, "id must be a string or an integer"))
        elif not isinstance(method, str):
            self._send_error(request_id, RpcError(INVALID_REQUEST, "method must be a string"))
        else:
            self._handle_request(request_id, method, params)

    def _handle_notification(self, method: Any, params: Any) -> None:
        # Whatever else is announced changes nothing here, and a notification is never answered, not even a wrong one.
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return
        request_id = params.get("requestId")
        with self._state_lock:
            call = self._running.get(request_id) if _is_request_id(request_id) else None
        if call is not None:
            call.interrupted.set()

    def _handle_request(self, request_id: str | int, method: str, params: Any) -> None:
        try:
            if method != "tools/call" and method not in self._methods:
                raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "params must be an object")
            if self._revision is None and method not in ("initialize", "ping"):
                raise RpcError(INVALID_REQUEST, f"{method} came before initialize")
            if method == "tools/call":
                self._start_call(request_id, params)
            else:
                self._send_result(request_id, self._methods[method](params))
        except RpcError as error:
            self._send_error(request_id, error)

    # Methods

    def _initialize(self, params: Json) -> Json:
        if self._revision is not None:
            raise RpcError(INVALID_REQUEST, "already initialized")
        requested = params.get("protocolVersion")
        if not isinstance(requested, str):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a string")
        self._revision = requested if requested in REVISIONS else REVISIONS[-1]
        return {
            "protocolVersion": self._revision,
            "capabilities": {
                "tools": {"listChanged": True},
                "resources": {},
                "prompts": {},
                "logging": {},
                "completions": {},
            },
            "serverInfo": {"name": "gaia-demo", "title": "gaia demo server", "version": VERSION},
            "instructions": "Tools to try a client with. `crash` ends this process: a supervisor starts it again.",
        }

    def _set_log_level(self, params: Json) -> Json:
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
        self._log_level = level
        return {}

    def _list_tools(self, params: Json) -> Json:
        tools = list(self._tools.values())
        start = self._page_start(params, len(tools))
        end = len(tools) if self._page_size is None else start + self._page_size
        result: Json = {"tools": [tool.listing() for tool in tools[start:end]]}
        if end < len(tools):
            result["nextCursor"] = f"from-{end}"
        return result

    @staticmethod
    def _page_start(params: Json, count: int) -> int:
        if "cursor" not in params:
            return 0
        word, _dash, number = str(params["cursor"]).partition("-")
        if word != "from" or not number.isdecimal() or not 0 < int(number) < count:
            raise RpcError(INVALID_PARAMS, f"unknown cursor {params['cursor']!r}")
        return int(number)

    def _start_call(self, request_id: str | int, params: Json) -> None:
        tool = self._tools.get(name) if isinstance(name := params.get("name"), str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool {name!r}")
        arguments = check_arguments(tool.properties, params.get("arguments", {}))
        meta = params.get("_meta")
        call = Call(self, request_id, meta.get("progressToken") if isinstance(meta, dict) else None)
        thread = threading.Thread(target=self._run_call, args=(call, tool, arguments), name=tool.name, daemon=True)
        with self._state_lock:
            if request_id in self._running:
                raise RpcError(INVALID_REQUEST, f"request {request_id!r} is already running")
            # Before it starts, so that a cancellation on the very next line finds it.
            self._running[request_id] = call
            self._threads.add(thread)
        thread.start()

    def _run_call(self, call: Call, tool: Tool, arguments: Json) -> None:
        result = tool.run(call, arguments)
        # Off the list before the answer is out: from then on the client may do what it wants.
        with self._state_lock:
            del self._running[call.request_id]
        if result is not None:
            self._send_result(call.request_id, result)
        # Only now: until the answer is out, the end of input has to wait for it.
        with self._state_lock:
            self._threads.discard(threading.current_thread())

    # Output, from any thread

    def _send_result(self, request_id: str | int, result: Json) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _send_error(self, request_id: str | int | None, error: RpcError) -> None:
        body: Json = {"code": error.code, "message": error.message}
        if error.data is not None:
            body["data"] = error.data
        self._send({"jsonrpc": "2.0", "id": request_id, "error": body})

    def _send(self, message: Json) -> None:
        # ASCII escapes: a lone surrogate in an argument is legal JSON that UTF-8 cannot carry in any other way.
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        with self._output_lock:
            self._write(line)


def _is_request_id(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# The process ----------------------------------------------------------------------------------------------------------


def _write_to_stdout(data: bytes) -> None:
    # The descriptor and not sys.stdout: its buffer has a lock, and a call that is interrupted by the end of the process
    # while it holds that lock would abort the interpreter.
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        # The client is gone, and nobody is left to tell.
        os._exit(0)


def _page_size_from(arguments: Sequence[str]) -> int | None:
    # Imported only for a command line that has something to parse: it is a quarter of the start time.
    import argparse

    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
        return int(text)

    parser = argparse.ArgumentParser(
        prog="python -m gaia.mcp.demo_server",
        description="A small MCP server over stdio, for demos, documentation and tests.",
        epilog=f"Tools: {', '.join(tool.name for tool in TOOLS)}. It ends with its standard input.",
    )
    parser.add_argument(
        "--page-size", type=positive, metavar="N", help="answer tools/list in pages of N tools (default: one page)"
    )
    page_size: int | None = parser.parse_args(arguments).page_size
    return page_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the end of standard input; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    page_size = _page_size_from(arguments) if arguments else None
    server = DemoServer(_write_to_stdout, page_size)
    # Nothing but the protocol may reach standard output, whoever prints.
    sys.stdout = sys.stderr
    print(f"gaia demo server {VERSION} (pid {os.getpid()}) serves MCP on standard input and output", file=sys.stderr)
    try:
        for line in sys.stdin.buffer:
            server.handle_line(line)
    except KeyboardInterrupt:
        return 130
    server.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
