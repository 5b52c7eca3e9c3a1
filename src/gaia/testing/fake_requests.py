"""The requests of a fake server to its client, and the threads that wait for their answers."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable

from gaia.agents.base.mcp_context import MCPRequestCancelled
from gaia.mcp.errors import JsonRpcError
from gaia.mcp.protocol.messages import encode_request
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.locks import reentrant_lock
from gaia.testing.fake_tool import Json


class FakeRequests:
    """The requests of one generation. Thread-safe."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` takes a line for the client."""
        self._write = write
        self._ids = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns `_waiting`."""
        self._waiting: dict[str, queue.SimpleQueue[Json | None]] = {}
        """By id, where a thread waits for the answer; None comes when there will be none."""

    def ask(self, request: Json, scope: CancelScope) -> Json:
        """Send the client a request, and wait for its result, until `scope` is cancelled.

        Raises JsonRpcError for an error, and MCPRequestCancelled if `scope` was cancelled.
        """
        identifier = f"fake-{next(self._ids)}"
        waiting: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        with self._lock:
            self._waiting[identifier] = waiting
        forget = scope.on_cancel(lambda: waiting.put(None))
        try:
            self._write(encode_request(identifier, request["method"], request.get("params")))
            answer = waiting.get()
        finally:
            forget()
            with self._lock:
                self._waiting.pop(identifier, None)
        if answer is None:
            raise MCPRequestCancelled
        if "error" in answer:
            raise JsonRpcError(answer["error"]["code"], answer["error"]["message"])
        result: Json = answer["result"]
        return result

    def answered(self, message: Json) -> None:
        """A response of the client has come. One that no thread waits for is dropped."""
        with self._lock:
            waiting = self._waiting.pop(str(message.get("id")), None)
        if waiting is not None:
            waiting.put(message)
