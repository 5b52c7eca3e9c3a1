"""A gateway for the one client that has started it, on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable

from gaia.mcp.gateway.front.line_client import LineClient
from gaia.mcp.gateway.gateway import Gateway
from gaia.mcp.gateway.operations.reloader import Reloader, Source
from gaia.runtime.log import get_logger
from gaia.runtime.loop_work import LoopWork, running_loop_work
from gaia.serving.descriptors import take_descriptors

logger = get_logger(__name__)

MAX_LINE = 16 * 1024 * 1024
"""Bytes; there is no way to answer what cannot be read, so a longer one ends the session."""

_MAX_AHEAD = 1_024
"""Lines that are read and not looked at yet."""

_MAX_UNWRITTEN = 64 * 1024 * 1024
"""Bytes for a client that does not read. Beyond that it counts as gone."""

_POLL_SECONDS = 0.05


def serve_stdio(gateway: Gateway, sources: Iterable[Source] = (), *, grace: float = 5.0) -> None:
    """Serve until the end of input, or SIGTERM or SIGINT; then requests under way have `grace` seconds to end.

    `sources` are read again when their files change.
    """
    incoming, outgoing = take_descriptors()
    asyncio.run(serve_lines(gateway, incoming, outgoing, sources, grace=grace))


async def serve_lines(
    gateway: Gateway, incoming: int, outgoing: int, sources: Iterable[Source] = (), *, grace: float = 5.0
) -> None:
    """Serve a client on two descriptors, which are closed in the end. In a main thread it catches signals."""
    loop, inbox = asyncio.get_running_loop(), running_loop_work()
    over = asyncio.Event()
    is_told = False

    def told() -> None:
        nonlocal is_told
        is_told = True
        over.set()

    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told)
    writer = _Writer(outgoing, lambda: inbox.post(over.set))
    async with gateway:
        client = gateway.line_client(writer.write)
        reloader = Reloader(sources, loop)
        reloader.start()
        _Reader(incoming, inbox, client, over.set).start()
        await over.wait()
        reloader.stop()
        if is_told:
            gateway.drain()
            deadline = loop.time() + grace
            while not client.is_idle and loop.time() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
        client.end()
    await asyncio.to_thread(writer.close, grace)


class _Reader:
    """Reads lines on a thread of its own, a daemon because nothing can interrupt it while the client is silent."""

    def __init__(self, descriptor: int, inbox: LoopWork, client: LineClient, ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._inbox = inbox
        self._client = client
        self._ended = ended
        self._ahead = threading.BoundedSemaphore(_MAX_AHEAD)
        """So that a client that floods is not read ahead of."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="gaia-gateway-stdin", daemon=True).start()

    def _run(self) -> None:
        try:
            with os.fdopen(self._descriptor, "rb") as stream:
                while line := stream.readline(MAX_LINE + 1):
                    if len(line) > MAX_LINE:
                        logger.error("line_too_long", limit=MAX_LINE)
                        break
                    if line := line.strip():
                        self._ahead.acquire()
                        self._inbox.post(functools.partial(self._received, line))
        except OSError as error:
            logger.debug("stdin_ended", error=repr(error))
        self._inbox.post(self._ended)

    def _received(self, line: bytes) -> None:
        self._ahead.release()
        self._client.received(line)


class _Writer:
    """Writes lines on a thread of its own, because a client that does not read holds a write up for ever."""

    def __init__(self, descriptor: int, on_gone: Callable[[], None]) -> None:
        """`on_gone` is called on any thread."""
        self._descriptor = descriptor
        self._on_gone = on_gone
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._put = 0
        """Bytes in all; only the loop's thread changes it."""
        self._written = 0
        """Bytes in all; only the writing thread changes it."""
        self._thread = threading.Thread(target=self._run, name="gaia-gateway-stdout", daemon=True)
        self._thread.start()

    def write(self, message: bytes) -> None:
        if self._put - self._written > _MAX_UNWRITTEN:
            self._on_gone()
            return
        self._put += len(message) + 1
        self._lines.put(message + b"\n")

    def close(self, seconds: float) -> None:
        """Write what is left, for so many seconds at most."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                self._written += len(line)
        except OSError:
            self._on_gone()
        finally:
            os.close(self._descriptor)
