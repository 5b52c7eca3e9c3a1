"""An HTTP endpoint on loopback that plays a script: the model, for the clients of OpenAI and Anthropic."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Step = Json | Callable[[], object]


@dataclass
class Endpoint:
    """What it is asked, and what it answers."""

    url: str
    steps: list[Step]
    """Bodies of answers, and functions that are run before the next one."""
    requests: list[Json] = field(default_factory=list)

    def answer(self, request: Json) -> Json:
        self.requests.append(request)
        while callable(step := self.steps.pop(0)):
            step()
        return step


@contextlib.contextmanager
def scripted_endpoint(*steps: Step) -> Iterator[Endpoint]:
    """Answers each POST, whatever its path, with the next body."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}", list(steps))
    server.endpoint = endpoint  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="scripted-endpoint")
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint: Endpoint = self.server.endpoint  # type: ignore[attr-defined]
        body = json.dumps(endpoint.answer(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        pass
