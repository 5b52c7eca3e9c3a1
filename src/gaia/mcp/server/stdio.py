"""Serves an agent on standard input and output.

The server takes the descriptors before the agent is made. After that, descriptor 1 leads to standard error and
descriptor 0 to nothing, so output and input of the agent, of a C library or of a child process never mix with the
protocol.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from gaia.agents.base.mcp_context import ServableAgent
from gaia.mcp.server.factory import ServedAgent, create_server
from gaia.runtime.log import get_logger
from gaia.serving.descriptors import read_lines, take_descriptors, write_line
from gaia.serving.threads import WorkerThreads

logger = get_logger(__name__)

DEFAULT_MAX_LINE = 16 * 1024 * 1024

Incoming = MemoryObjectSendStream[SessionMessage | Exception]


def serve(make_agent: Callable[[], ServableAgent], *, max_line: int = DEFAULT_MAX_LINE, **limits: Any) -> None:
    """Serve the agent of `make_agent` until end of input, SIGTERM or SIGINT. `limits` go to `create_server`.

    A line of more than `max_line` bytes ends the session, because an unread request cannot be answered.
    """
    incoming, outgoing = take_descriptors()
    served = create_server(make_agent(), **limits)
    asyncio.run(_serve(served, incoming, outgoing, max_line))


async def _serve(served: ServedAgent, incoming: int, outgoing: int, max_line: int) -> None:
    read_sender, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, write_receiver = anyio.create_memory_object_stream[SessionMessage](0)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # A daemon, because nothing can interrupt it while the client is silent.
    reader = threading.Thread(
        target=_read_lines, args=(incoming, max_line, loop, read_sender), name="gaia-serve-stdin", daemon=True
    )
    async with served.running(), anyio.create_task_group() as tasks:

        async def session() -> None:
            await served.server.run(read_stream, write_stream, served.server.create_initialization_options())
            stop.set()

        async def writer() -> None:
            if not await _write_lines(outgoing, write_receiver):
                stop.set()

        tasks.start_soon(session)
        tasks.start_soon(writer)
        reader.start()
        await stop.wait()
        tasks.cancel_scope.cancel()


def _read_lines(descriptor: int, max_line: int, loop: asyncio.AbstractEventLoop, sender: Incoming) -> None:
    def hand_over(item: SessionMessage | Exception) -> None:
        # Waits until the server has taken the item, which limits how far a flood is read ahead.
        asyncio.run_coroutine_threadsafe(sender.send(item), loop).result()

    try:
        for line in read_lines(descriptor, max_line):
            hand_over(_parsed(line))
        loop.call_soon_threadsafe(sender.close)
    except Exception as error:  # noqa: BLE001 - the loop has ended, whatever that makes this thread see
        logger.debug("stdin_ended", error=repr(error))


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as error:
        return error


async def _write_lines(descriptor: int, receiver: MemoryObjectReceiveStream[SessionMessage]) -> bool:
    """Write until the session ends. False if the client went away before."""
    # Daemon threads, because a client that does not read blocks a write for ever.
    threads = WorkerThreads(1)
    try:
        async with receiver:
            async for message in receiver:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                await threads.run(partial(write_line, descriptor, line))
    except OSError:
        return False
    finally:
        threads.close()
    return True
