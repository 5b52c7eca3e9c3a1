"""A small, real MCP server over stdio: ``python -m gaia.mcp.demo_server``.

The demo, the documentation and the tests need a server that exists on every machine and starts quickly, so this one
uses only the standard library. It also runs as a file: ``python -I path/to/demo_server.py``.

It speaks the revisions that open with ``initialize`` (2024-11-05 to 2025-11-25). Tool calls run concurrently, one
thread each; everything else is answered by the thread that reads standard input. Some tools show the failures that a
supervisor handles: ``sleep`` is slow and can be cancelled, ``fail`` fails, ``crash`` takes the process down, and
``counter`` loses its state with it.
"""

import contextlib
import itertools
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]

VERSION = "1.0.0"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Oldest to newest. A client that requests another revision is offered the newest."""
BATCHING_REVISION = "2025-03-26"
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
PROGRESS_SECONDS, GRACE_SECONDS = 0.1, 0.5
NUMBERS = itertools.count(1)
TYPES = {"string": str, "number": int | float, "integer": int}
NUMBER: Json = {"type": "number"}
SECONDS: Json = {"type": "number", "minimum": 0, "maximum": 3600}
EXIT_CODE: Json = {"type": "integer", "minimum": 0, "maximum": 255, "default": 1}
MESSAGE: Json = {"type": "string", "default": "this tool always fails"}
READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
ADDITIVE = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
DESTRUCTIVE = ADDITIVE | {"destructiveHint": True}


class RpcError(Exception):
    """An answer of the ``error`` kind. Its arguments are the code, the message and perhaps the data."""


class Call:
    def __init__(self, send: Callable[[Json], None], progress_token: str | int | None) -> None:
        self.interrupted = threading.Event()
        """Set when the client has cancelled the call or has gone."""
        self._send = send
        self._progress_token = progress_token

    def report_progress(self, progress: float, total: float) -> None:
        if self._progress_token is not None and not self.interrupted.is_set():
            params = {"progressToken": self._progress_token, "progress": progress, "total": total}
            self._send({"method": "notifications/progress", "params": params})


class Tool(NamedTuple):
    name: str
    description: str
    properties: Json
    """JSON Schema of each argument. An argument without a ``default`` is required."""
    annotations: Json
    run: Callable[..., Json | None]
    """Takes the call and its arguments. Returns None if the call was interrupted and needs no answer."""
    output_properties: Json | None = None

    def listing(self) -> Json:
        listing: Json = {"name": self.name, "title": self.name.capitalize(), "description": self.description}
        listing |= {"inputSchema": _object_schema(self.properties), "annotations": self.annotations}
        if self.output_properties is not None:
            listing["outputSchema"] = _object_schema(self.output_properties)
        return listing


def _object_schema(properties: Json) -> Json:
    required = [name for name, schema in properties.items() if "default" not in schema]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def check_arguments(properties: Json, arguments: Any) -> Json:
    """Return `arguments` with the defaults; raise `RpcError` with the name of a wrong argument."""
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "arguments must be an object")
    complete = {name: schema["default"] for name, schema in properties.items() if "default" in schema} | arguments
    for name, value in complete.items():
        if (schema := properties.get(name)) is None:
            raise RpcError(INVALID_PARAMS, f"unexpected argument {name!r}")
        # A Python bool is an int, but a JSON boolean is not a number.
        if not isinstance(value, TYPES[schema["type"]]) or isinstance(value, bool):
            raise RpcError(INVALID_PARAMS, f"argument {name!r} must be of type {schema['type']}")
        if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
            raise RpcError(INVALID_PARAMS, f"argument {name!r} must be from {schema['minimum']} to {schema['maximum']}")
    for name in properties.keys() - complete.keys():
        raise RpcError(INVALID_PARAMS, f"missing argument {name!r}")
    return complete


def text_result(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def structured_result(value: Json) -> Json:
    # The text is for clients older than 2025-06-18.
    return text_result(json.dumps(value)) | {"structuredContent": value}


def _add(call: Call, a: float, b: float) -> Json:
    with contextlib.suppress(OverflowError):
        if math.isfinite(a + b):
            return structured_result({"sum": a + b})
    return _fail(call, "the sum is too large")  # JSON cannot write infinity.


def _sleep(call: Call, seconds: float) -> Json | None:
    started = time.monotonic()
    while (remaining := seconds - (time.monotonic() - started)) > 0:
        if call.interrupted.wait(min(remaining, PROGRESS_SECONDS)):
            return None
        call.report_progress(min(seconds, round(time.monotonic() - started, 3)), seconds)
    return text_result(f"slept {seconds} s")


def _fail(_call: Call, message: str) -> Json:
    return text_result(message) | {"isError": True}


def _crash(_call: Call, exit_code: int) -> Json:
    os._exit(exit_code)  # sys.exit ends only this thread.


def _counter(_call: Call) -> Json:
    return structured_result({"value": next(NUMBERS)})


TOOLS = (
    Tool("add", "Add two numbers.", {"a": NUMBER, "b": NUMBER}, READ_ONLY, _add, {"sum": NUMBER}),
    Tool("echo", "Return the text.", {"text": {"type": "string"}}, READ_ONLY, lambda _call, text: text_result(text)),
    Tool("sleep", "Answer later, reporting progress; can be cancelled.", {"seconds": SECONDS}, READ_ONLY, _sleep),
    Tool("fail", "Fail as a tool: the result says isError.", {"message": MESSAGE}, READ_ONLY, _fail),
    Tool("crash", "Exit at once, without an answer.", {"exit_code": EXIT_CODE}, DESTRUCTIVE, _crash),
    Tool("counter", "Count its calls; a restart begins again at 1.", {}, ADDITIVE, _counter, {"value": NUMBER}),
)


class DemoServer:
    """Reads and answers JSON-RPC lines. A subclass may offer more `methods`, `tools` and `capabilities`."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.tools = {tool.name: tool for tool in TOOLS}
        self.capabilities: Json = {"tools": {}}
        self.methods: dict[str, Callable[[Json], Json]] = {
            "initialize": self._initialize,
            "ping": lambda _params: {},
            "tools/list": lambda _params: {"tools": [tool.listing() for tool in self.tools.values()]},
        }
        self._write = write
        self._output_lock = threading.Lock()
        self._revision: str | None = None
        self._running: dict[str | int, Call] = {}
        self._lock = threading.Lock()
        """Guards `_running`, which the reading thread and the calls' threads share."""

    def handle_line(self, line: bytes) -> None:
        """Handle one line of input: a message or, in revision 2025-03-26, several."""
        try:
            # NaN and Infinity are not JSON; int raises ValueError for them.
            message = json.loads(line, parse_constant=int)
        except (ValueError, RecursionError) as error:
            self._send_error(None, RpcError(PARSE_ERROR, f"parse error: {error}"))
            return
        batched = isinstance(message, list) and message and self._revision == BATCHING_REVISION
        for part in message if batched else [message]:
            self._handle_message(part)

    def interrupt(self, *request_ids: Any) -> None:
        """Wake these calls if they sleep. Without ids, wake every call."""
        with self._lock:
            for request_id, call in self._running.items():
                if not request_ids or request_id in request_ids:
                    call.interrupted.set()

    def _handle_message(self, message: Any) -> None:
        request_id = None
        try:
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                raise RpcError(INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            method, params = message.get("method"), message.get("params", {})
            # Other notifications and answers are ignored, because this server sends no requests.
            if method == "notifications/cancelled" and "id" not in message and isinstance(params, dict):
                self.interrupt(params.get("requestId"))
            elif "id" in message and ("method" in message or not message.keys() & {"result", "error"}):
                if type(message["id"]) not in (str, int):
                    raise RpcError(INVALID_REQUEST, "id must be a string or an integer")
                request_id = message["id"]
                self._handle_request(request_id, method, params)
        except RpcError as error:
            self._send_error(request_id, error)

    def _handle_request(self, request_id: str | int, method: Any, params: Any) -> None:
        if not isinstance(method, str):
            raise RpcError(INVALID_REQUEST, "method must be a string")
        if method != "tools/call" and method not in self.methods:
            raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params must be an object")
        if self._revision is None and method not in ("initialize", "ping"):
            raise RpcError(INVALID_REQUEST, f"{method} came before initialize")
        if method == "tools/call":
            self._start_call(request_id, params)
        else:
            self.send({"id": request_id, "result": self.methods[method](params)})

    def _initialize(self, params: Json) -> Json:
        if self._revision is not None:
            raise RpcError(INVALID_REQUEST, "already initialized")
        requested = params.get("protocolVersion")
        if not isinstance(requested, str):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be a string")
        self._revision = requested if requested in REVISIONS else REVISIONS[-1]
        return {
            "protocolVersion": self._revision,
            "capabilities": self.capabilities,
            "serverInfo": {"name": "gaia-demo", "title": "gaia demo server", "version": VERSION},
            "instructions": "Tools to try a client with. `crash` ends this process: a supervisor starts it again.",
        }

    def _start_call(self, request_id: str | int, params: Json) -> None:
        tool = self.tools.get(name) if isinstance(name := params.get("name"), str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool {name!r}")
        arguments = check_arguments(tool.properties, params.get("arguments", {}))
        meta = params.get("_meta")
        call = Call(self.send, meta.get("progressToken") if isinstance(meta, dict) else None)

        def run() -> None:
            result = tool.run(call, **arguments)
            # Removed before the answer is sent, because after that the client may use the id again.
            with self._lock:
                del self._running[request_id]
            if result is not None:
                self.send({"id": request_id, "result": result})

        with self._lock:
            if request_id in self._running:
                raise RpcError(INVALID_REQUEST, f"request {request_id!r} is already running")
            # Added before the thread starts, so that a cancellation on the very next line finds the call.
            self._running[request_id] = call
        threading.Thread(target=run, name=tool.name, daemon=True).start()

    def _send_error(self, request_id: str | int | None, error: RpcError) -> None:
        self.send({"id": request_id, "error": dict(zip(("code", "message", "data"), error.args, strict=False))})

    def send(self, message: Json) -> None:
        """Send a message, from any thread."""
        # ASCII escapes, because UTF-8 cannot carry a lone surrogate, which JSON allows.
        text = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":"), allow_nan=False)
        with self._output_lock:
            self._write(text.encode("ascii") + b"\n")


def _write_to_stdout(data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        os._exit(0)  # The client is gone.


def serve(make: Callable[[Callable[[bytes], None]], DemoServer]) -> int:
    """Serve until the end of standard input; return the exit code. `make` receives a function that writes a line."""
    server = make(_write_to_stdout)
    sys.stdout = sys.stderr  # Only the protocol may reach standard output; `print` goes to standard error.
    print(f"gaia demo server {VERSION} (pid {os.getpid()}) serves MCP on standard input and output", file=sys.stderr)
    try:
        for line in filter(bytes.strip, sys.stdin.buffer):
            server.handle_line(line)
    except KeyboardInterrupt:
        return 130
    finally:
        server.interrupt()
        # Calls that are about to answer get some time. A client that does not read cannot keep the process alive.
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in (thread for thread in threading.enumerate() if thread.daemon):
            thread.join(max(0.0, deadline - time.monotonic()))
    return 0


if __name__ == "__main__":
    if arguments := sys.argv[1:]:  # It takes none, and explains itself.
        print(__doc__, file=sys.stderr)
        sys.exit(0 if arguments == ["--help"] else 2)
    sys.exit(serve(DemoServer))
