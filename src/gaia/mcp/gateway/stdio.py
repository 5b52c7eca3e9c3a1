"""Runs a gateway on standard input and output, for the one client that has started it."""

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
from gaia.runtime.loop_work import LoopWork, running_loop_work
from gaia.serving.descriptors import read_lines, take_descriptors, write_line

MAX_LINE = 16 * 1024 * 1024
"""Bytes. A longer line ends the session: the gateway cannot read the request, and so cannot answer it."""

_MAX_AHEAD = 1_024

_MAX_UNWRITTEN = 64 * 1024 * 1024
"""Bytes for a client that does not read. With more, the client counts as gone."""

_POLL_SECONDS = 0.05


def serve_stdio(gateway: Gateway, sources: Iterable[Source] = (), *, grace: float = 5.0) -> None:
    """Serve until the end of input, SIGTERM or SIGINT. After a signal, open requests have `grace` seconds to end.

    `sources` are read again when their files change.
    """
    incoming, outgoing = take_descriptors()
    asyncio.run(serve_lines(gateway, incoming, outgoing, sources, grace=grace))


async def serve_lines(
    gateway: Gateway, incoming: int, outgoing: int, sources: Iterable[Source] = (), *, grace: float = 5.0
) -> None:
    """Serve a client on two descriptors, and close them at the end. In the main thread, signals are handled."""
    loop, work = asyncio.get_running_loop(), running_loop_work()
    over = asyncio.Event()
    is_told = False

    def told() -> None:
        nonlocal is_told
        is_told = True
        over.set()

    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told)
    writer = _Writer(outgoing, lambda: work.post(over.set))
    async with gateway:
        client = gateway.line_client(writer.write)
        reloader = Reloader(sources, loop)
        reloader.start()
        # A daemon, because nothing can interrupt a read while the client is silent.
        reading = (incoming, work, client, over.set)
        threading.Thread(target=_read, args=reading, name="gaia-gateway-stdin", daemon=True).start()
        await over.wait()
        reloader.stop()
        if is_told:
            gateway.drain()
            deadline = loop.time() + grace
            while not client.is_idle and loop.time() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
        client.end()
    await asyncio.to_thread(writer.close, grace)


def _read(descriptor: int, work: LoopWork, client: LineClient, ended: Callable[[], None]) -> None:
    ahead = threading.BoundedSemaphore(_MAX_AHEAD)

    def received(line: bytes) -> None:
        ahead.release()
        client.received(line)

    for line in read_lines(descriptor, MAX_LINE):
        ahead.acquire()
        work.post(functools.partial(received, line))
    work.post(ended)


class _Writer:
    """Writes lines on its own thread, because a write blocks while the client does not read."""

    def __init__(self, descriptor: int, on_gone: Callable[[], None]) -> None:
        """`on_gone` may be called on any thread."""
        self._descriptor = descriptor
        self._on_gone = on_gone
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._put = 0
        self._written = 0
        """Bytes written so far. Only the writer's thread changes it."""
        self._thread = threading.Thread(target=self._run, name="gaia-gateway-stdout", daemon=True)
        self._thread.start()

    def write(self, message: bytes) -> None:
        if self._put - self._written > _MAX_UNWRITTEN:
            self._on_gone()
            return
        self._put += len(message) + 1
        self._lines.put(message + b"\n")

    def close(self, seconds: float) -> None:
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                write_line(self._descriptor, line)
                self._written += len(line)
        except OSError:
            self._on_gone()
        finally:
            os.close(self._descriptor)
