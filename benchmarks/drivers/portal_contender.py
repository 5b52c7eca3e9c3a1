"""An asynchronous client as synchronous programs use it: through anyio's portal to an event loop in another thread."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from driving import AsyncContender

__all__ = ["PortalContender"]


class PortalContender:
    def __init__(self, contender: AsyncContender) -> None:
        self._contender = contender
        self.request = contender.request
        self.is_echo = contender.is_echo

    def load(self) -> None:
        self._contender.load()
        from anyio.from_thread import start_blocking_portal

        self._start_portal = start_blocking_portal

    def connect(self, argv: list[str], servers: int) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(self._start_portal())
        self._clients = [
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._contender.client(argv)))
            for _ in range(servers)
        ]

    def call(self, server: int, request: Any) -> Any:
        return self._portal.call(self._contender.call, self._clients[server], request)
