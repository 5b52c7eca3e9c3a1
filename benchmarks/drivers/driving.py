"""What all drivers share: commands on standard input, answers on standard output, and the loops that are timed.

A driver is a process that holds one contender and does what the harness says. It runs in the contender's own virtual
environment, so this module needs nothing but the standard library, and imports little of that: what it has loaded
already makes a contender's import look quicker than it is.

Each command is one line of JSON with the key ``do``; each answer is one line too, with ``error`` if it failed.

=========  =========================  ================================================================================
``do``     further keys               answer
=========  =========================  ================================================================================
load                                  ``seconds`` that importing the contender took
connect    ``argv``, ``servers``      ``seconds`` until all of them were ready
disconnect                            ``seconds`` until all of them had ended
call       ``size``, ``count``        ``latencies`` in seconds, one call after the other; ``cpu`` seconds of all of them
crowd      ``callers``, ``servers``,  ``calls`` that were answered within ``seconds`` (of which they took a bit more),
           ``seconds``                by that many callers at once
recover    ``pid``, ``give_up``       ``seconds`` from killing the server to the next good answer; None if none came
=========  =========================  ================================================================================
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

_TEXT_BYTES = 64
_RETRY_SECONDS = 0.001


class Contender(Protocol):
    """A client whose calls block. `call` and `is_echo` are used by many threads at once."""

    def load(self) -> None:
        """Import what is measured."""

    def connect(self, argv: list[str], servers: int) -> None:
        """Start that many servers, each with the command line `argv`, and shake hands with them.

        For a server over HTTP `argv` is its URL alone: see `is_url`.
        """

    def disconnect(self) -> None:
        """End all of them, as a program does that is done with them."""

    def request(self, text: str) -> Any:
        """What `call` needs; made outside of what is timed."""

    def call(self, server: int, request: Any) -> Any:
        """One call of the tool ``echo`` of one of the servers; what it returns is for `is_echo`."""

    def is_echo(self, request: Any, answer: Any) -> bool:
        """Whether the answer has the text of the request. Outside of what is timed."""


class AsyncContender(Protocol):
    """The same for a client whose calls are awaited."""

    def load(self) -> None: ...

    def client(self, argv: list[str]) -> AbstractAsyncContextManager[Any]:
        """One server that is ready, and its client."""

    def request(self, text: str) -> Any: ...

    async def call(self, client: Any, request: Any) -> Any: ...

    def is_echo(self, request: Any, answer: Any) -> bool: ...


def is_url(argv: list[str]) -> bool:
    """Whether a server is reached over HTTP, instead of being started."""
    return argv[0].startswith("http://")


class EchoCalls:
    """The part of a contender whose requests are the tool's arguments, and whose answers are dicts or objects."""

    def request(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def is_echo(self, request: dict[str, Any], answer: Any) -> bool:
        (first,) = answer["content"] if isinstance(answer, dict) else answer.content
        return bool((first["text"] if isinstance(first, dict) else first.text) == request["text"])


def entry_of(argv: list[str]) -> dict[str, Any]:
    """A server as an entry of a configuration."""
    return {"url": argv[0]} if is_url(argv) else {"command": argv[0], "args": argv[1:]}


def batching_provider(*, sampled: bool) -> Any:
    """A tracer provider with OpenTelemetry's batch processor, and an exporter that throws spans away."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

    class Discard(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    provider.add_span_processor(BatchSpanProcessor(Discard()))
    return provider


def trace_if_asked() -> None:
    """With ``--traced`` on the command line, everything is recorded and thrown away."""
    if "--traced" in sys.argv:
        from opentelemetry import trace

        trace.set_tracer_provider(batching_provider(sampled=True))


class _PortalContender:
    """An asynchronous client as synchronous programs use it: through anyio's portal to an event loop in a thread."""

    def __init__(self, contender: AsyncContender) -> None:
        self._contender = contender
        self.request = contender.request
        self.is_echo = contender.is_echo

    def load(self) -> None:
        self._contender.load()
        from anyio.from_thread import start_blocking_portal

        self._start_portal = start_blocking_portal

    def connect(self, argv: list[str], servers: int) -> None:
        from contextlib import ExitStack

        self._stack = ExitStack()
        self._portal = self._stack.enter_context(self._start_portal())
        self._clients = [
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._contender.client(argv)))
            for _ in range(servers)
        ]

    def disconnect(self) -> None:
        self._stack.close()

    def call(self, server: int, request: Any) -> Any:
        return self._portal.call(self._contender.call, self._clients[server], request)


def drive(contender: Contender) -> None:
    """Do what the harness says until it closes our standard input; then leave, and let the servers see the end."""
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "load": lambda: _timed(contender.load),
        "connect": lambda argv, servers: _timed(lambda: contender.connect(argv, servers)),
        "disconnect": lambda: _timed(contender.disconnect),
        "call": lambda size, count: _call(contender, size, count),
        # One without threads has its own way of keeping so many calls under way.
        "crowd": getattr(contender, "crowd", lambda **asked: _crowd(contender, **asked)),
        # One that does not recover may start its server again, which shows how much of a recovery that is.
        "recover": getattr(contender, "recover", lambda pid, give_up: _recover(contender, pid, give_up)),
        # What only some are asked.
        **getattr(contender, "further_commands", {}),
    }
    answers = _take_stdout()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = commands[command.pop("do")](**command)
        except Exception as error:
            answer = _error(error)
        print(json.dumps(answer), file=answers, flush=True)
    # A client that leaves in good order has something for it; the servers of others see the end of their input.
    getattr(contender, "close", lambda: None)()
    os._exit(0)


def drive_async(contender: AsyncContender) -> None:
    """The same for a client whose calls are awaited; with ``--portal`` on the command line, from synchronous code."""
    if "--portal" in sys.argv:
        drive(_PortalContender(contender))
    import asyncio
    from contextlib import AsyncExitStack

    stack = AsyncExitStack()
    clients: list[Any] = []

    async def load() -> dict[str, Any]:
        return _timed(contender.load)

    async def connect(argv: list[str], servers: int) -> dict[str, Any]:
        started = time.perf_counter()
        while len(clients) < servers:
            clients.append(await stack.enter_async_context(contender.client(argv)))
        return {"seconds": time.perf_counter() - started}

    async def disconnect() -> dict[str, Any]:
        started = time.perf_counter()
        await stack.aclose()
        return {"seconds": time.perf_counter() - started}

    commands: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
        "load": load,
        "connect": connect,
        "disconnect": disconnect,
        "call": lambda size, count: _call_async(contender, clients[0], size, count),
        "crowd": lambda callers, servers, seconds: _crowd_async(contender, clients[:servers], callers, seconds),
        "recover": lambda pid, give_up: _recover_async(contender, clients[0], pid, give_up),
    }

    async def run() -> None:
        answers = _take_stdout()
        # In a thread of its own, so that the contender's tasks go on meanwhile.
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            try:
                answer = await commands[command.pop("do")](**command)
            except Exception as error:
                answer = _error(error)
            print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)

    asyncio.run(run())


def _call(contender: Contender, size: int, count: int) -> dict[str, Any]:
    clock, call = time.perf_counter, contender.call
    request = contender.request("x" * size)
    latencies = []
    cpu = time.process_time()
    for _ in range(count):
        started = clock()
        answer = call(0, request)
        latencies.append(clock() - started)
        assert contender.is_echo(request, answer), f"not the echo: {str(answer)[:200]}"
    return {"latencies": latencies, "cpu": time.process_time() - cpu}


async def _call_async(contender: AsyncContender, client: Any, size: int, count: int) -> dict[str, Any]:
    clock, call = time.perf_counter, contender.call
    request = contender.request("x" * size)
    latencies = []
    cpu = time.process_time()
    for _ in range(count):
        started = clock()
        answer = await call(client, request)
        latencies.append(clock() - started)
        assert contender.is_echo(request, answer), f"not the echo: {str(answer)[:200]}"
    return {"latencies": latencies, "cpu": time.process_time() - cpu}


def _crowd(contender: Contender, callers: int, servers: int, seconds: float) -> dict[str, Any]:
    import threading

    request = contender.request("x" * _TEXT_BYTES)
    counts = [0] * callers
    failures: list[str] = []
    ready = threading.Barrier(callers + 1)
    end = 0.0

    def call_until_end(index: int) -> None:
        server, count = index % servers, 0
        ready.wait()
        try:
            while time.perf_counter() < end:
                assert contender.is_echo(request, contender.call(server, request)), "not the echo"
                count += 1
        except Exception as error:
            failures.append(repr(error))
        counts[index] = count

    threads = [threading.Thread(target=call_until_end, args=(index,)) for index in range(callers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    end = started + seconds
    ready.wait()
    for thread in threads:
        thread.join()
    return _crowd_answer(sum(counts), time.perf_counter() - started, failures)


async def _crowd_async(contender: AsyncContender, clients: list[Any], callers: int, seconds: float) -> dict[str, Any]:
    import asyncio

    request = contender.request("x" * _TEXT_BYTES)
    counts = [0] * callers
    failures: list[str] = []
    started = time.perf_counter()
    end = started + seconds

    async def call_until_end(index: int) -> None:
        client = clients[index % len(clients)]
        try:
            while time.perf_counter() < end:
                assert contender.is_echo(request, await contender.call(client, request)), "not the echo"
                counts[index] += 1
        except Exception as error:
            failures.append(repr(error))

    await asyncio.gather(*(call_until_end(index) for index in range(callers)))
    return _crowd_answer(sum(counts), time.perf_counter() - started, failures)


def _crowd_answer(calls: int, seconds: float, failures: list[str]) -> dict[str, Any]:
    if failures:
        return {"error": f"{len(failures)} of the callers failed: {failures[0][:200]}"}
    return {"calls": calls, "seconds": seconds}


def _recover(contender: Contender, pid: int, give_up: float) -> dict[str, Any]:
    request = contender.request("x" * _TEXT_BYTES)
    started = _kill(pid)
    last = ""
    while time.perf_counter() < started + give_up:
        try:
            if contender.is_echo(request, contender.call(0, request)):
                return {"seconds": time.perf_counter() - started}
        except Exception as error:
            last = repr(error)
        time.sleep(_RETRY_SECONDS)
    return {"seconds": None, "last": last[:200]}


async def _recover_async(contender: AsyncContender, client: Any, pid: int, give_up: float) -> dict[str, Any]:
    import asyncio

    request = contender.request("x" * _TEXT_BYTES)
    started = _kill(pid)
    last = ""
    while (left := started + give_up - time.perf_counter()) > 0:
        try:
            if contender.is_echo(request, await asyncio.wait_for(contender.call(client, request), left)):
                return {"seconds": time.perf_counter() - started}
        except Exception as error:
            last = repr(error)
        await asyncio.sleep(_RETRY_SECONDS)
    return {"seconds": None, "last": last[:200]}


def _kill(pid: int) -> float:
    import signal

    now = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    return now


def _timed(action: Callable[[], object]) -> dict[str, Any]:
    started = time.perf_counter()
    action()
    return {"seconds": time.perf_counter() - started}


def _error(error: BaseException) -> dict[str, Any]:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return {"error": f"{type(error).__name__}: {error}"[:500]}


def _take_stdout() -> Any:
    """The stream of answers to the harness; other output to standard output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers
