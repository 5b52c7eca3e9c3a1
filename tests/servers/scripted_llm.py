"""An endpoint that speaks OpenAI's chat completions and says what it is told to: the other side of agents in tests.

It answers OpenAI's responses and Anthropic's messages, too; these not as streams.

It listens on loopback, in threads of the test's process, so a test can hold it up and let it go with events. Each
request is recorded, and answered with the next `Reply`; a request too many is an error that says so.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

MAX_HOLD = 20.0
"""Seconds after which a reply that nobody lets go goes by itself."""


@dataclass
class Reply:
    """One answer of the model, or what comes instead of it."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    """Name and arguments of each tool call; arguments that are a string are sent as they are."""
    usage: tuple[int, int] = (10, 5)
    """Tokens of the prompt and of the answer."""
    finish_reason: str | None = None
    """By default ``tool_calls`` or ``stop``, whichever fits."""
    status: int = 200
    body: str | None = None
    """Sent instead of a completion, whatever the request was."""
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    """Waited for before the first byte."""
    hold_after_text: threading.Event | None = None
    """Waited for when the text is out. Only in a stream."""
    break_off: bool = False
    """The connection breaks when the text is out. Only in a stream."""

    def message(self, first_id: int) -> Json:
        calls = [
            {
                "id": f"call_{first_id + number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for number, (name, arguments) in enumerate(self.calls)
        ]
        return {"role": "assistant", "content": self.text or None, **({"tool_calls": calls} if calls else {})}

    def reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def usage_counts(self) -> Json:
        prompt, completion = self.usage
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@dataclass
class ScriptedLLM:
    """The endpoint, while its context is entered."""

    base_url: str
    replies: list[Reply | Callable[[Json], Reply]]
    requests: list[Json] = field(default_factory=list)
    """The bodies, in the order of arrival."""
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released at each request."""

    def next_reply(self, request: Json, headers: dict[str, str]) -> Reply:
        self.requests.append(request)
        self.headers.append(headers)
        self.arrived.release()
        number = len(self.requests)
        if number > len(self.replies):
            return Reply(status=400, body=json.dumps({"error": {"message": f"request {number} is not in the script"}}))
        reply = self.replies[number - 1]
        return reply if isinstance(reply, Reply) else reply(request)

    def last_results(self) -> list[str]:
        """What the last request told the model of its tool calls."""
        messages = self.requests[-1]["messages"]
        last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
        return [message["content"] for message in messages[last + 1 :] if message["role"] == "tool"]


@contextlib.contextmanager
def scripted_llm(*replies: Reply | Callable[[Json], Reply]) -> Iterator[ScriptedLLM]:
    """Serve the replies, in order."""
    server = _Server(("127.0.0.1", 0), _Handler)
    endpoint = ScriptedLLM(f"http://127.0.0.1:{server.server_port}/v1", list(replies))
    server.endpoint = endpoint  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="scripted-llm")
    thread.start()
    try:
        yield endpoint
    finally:
        for reply in endpoint.replies:
            if isinstance(reply, Reply):
                for event in (reply.hold, reply.hold_after_text):
                    if event is not None:
                        event.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks its connection is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint: ScriptedLLM = self.server.endpoint  # type: ignore[attr-defined]
        reply = endpoint.next_reply(request, {name.lower(): value for name, value in self.headers.items()})
        if reply.hold is not None:
            reply.hold.wait(MAX_HOLD)
        # The client may be gone.
        with contextlib.suppress(OSError):
            make = _BODIES.get(self.path.partition("?")[0])
            if make is None:
                self._send_whole(404, json.dumps({"error": {"message": f"no {self.path} here"}}), {})
            elif reply.body is not None:
                self._send_whole(reply.status, reply.body, reply.headers)
            elif request.get("stream"):
                self._stream(reply, len(endpoint.requests) * 100)
            else:
                self._send_whole(200, json.dumps(make(reply, len(endpoint.requests) * 100)), {})

    def _send_whole(self, status: int, body: str, headers: dict[str, str]) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, reply: Reply, first_id: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for delta in _text_deltas(reply):
            self._event(_chunk(delta))
        if reply.hold_after_text is not None:
            reply.hold_after_text.wait(MAX_HOLD)
        if reply.break_off:
            self.close_connection = True
            return
        for delta in _call_deltas(reply, first_id):
            self._event(_chunk(delta))
        self._event(_chunk({}, reply.reason()))
        self._event({**_chunk({}), "choices": [], "usage": reply.usage_counts()})
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: Json | str) -> None:
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        pass


def _completion(reply: Reply, first_id: int) -> Json:
    choice = {"index": 0, "message": reply.message(first_id), "finish_reason": reply.reason()}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
        "usage": reply.usage_counts(),
    }


def _response(reply: Reply, first_id: int) -> Json:
    calls = [
        {"type": "function_call", "id": f"item_{call['id']}", "call_id": call["id"], **call["function"]}
        for call in reply.message(first_id).get("tool_calls", ())
    ]
    text = {"type": "output_text", "text": reply.text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    head = {"id": "r", "object": "response", "created_at": 0, "model": "scripted", "status": "completed"}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **settings, "output": [*([message] if reply.text else []), *calls]}


def _message(reply: Reply, first_id: int) -> Json:
    calls = [
        {"type": "tool_use", "id": f"call_{first_id + number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(reply.calls)
    ]
    texts = [{"type": "text", "text": reply.text}] if reply.text else []
    prompt, answer = reply.usage
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [*texts, *calls],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": answer},
    }


_BODIES = {"/v1/chat/completions": _completion, "/v1/responses": _response, "/v1/messages": _message}


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": [choice]}


def _text_deltas(reply: Reply) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    for piece in re.findall(r"\S+\s*|\s+", reply.text):
        yield {"content": piece}


def _call_deltas(reply: Reply, first_id: int) -> Iterator[Json]:
    """Each call in three pieces: its name, then its arguments in two halves."""
    for index, call in enumerate(reply.message(first_id).get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        middle = len(arguments) // 2
        start = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [start]}
        for piece in (arguments[:middle], arguments[middle:]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
